"""The audit, which compares the tables with the WAL."""
