"""The Faust side of the journal: the worker that applies the WAL to the tables."""
