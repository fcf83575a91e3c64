"""Readers of the journal's topics and of its archive."""
