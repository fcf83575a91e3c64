"""Replay of an archive into another journal: the part that Spark does."""
