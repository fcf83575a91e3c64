"""The audit: tables compared with the WAL."""
