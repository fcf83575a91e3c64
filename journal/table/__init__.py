"""The local copy of a journal's tables: kept, followed and opened."""
