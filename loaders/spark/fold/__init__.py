"""The fold of a WAL, by Spark."""
