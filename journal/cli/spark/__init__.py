"""The commands that start Spark."""
