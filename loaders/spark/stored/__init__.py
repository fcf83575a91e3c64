"""Files and tables that Spark's jobs keep."""
