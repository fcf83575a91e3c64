"""The archive of the WAL."""
