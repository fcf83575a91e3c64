"""What rebuilds state from the tables: activation, read-only loads, Spark."""
