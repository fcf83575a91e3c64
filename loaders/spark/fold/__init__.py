"""The fold, in Spark."""
