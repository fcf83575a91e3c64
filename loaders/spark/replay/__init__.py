"""Replays of an archive."""
