"""Appends: which operations are accepted, and how they are gathered into groups."""
