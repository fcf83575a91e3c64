"""Loads: a loader is told the state of a snapshot of the tables, record by record."""
