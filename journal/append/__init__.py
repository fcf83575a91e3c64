"""Appends: what is accepted, and how it gathers into groups."""
