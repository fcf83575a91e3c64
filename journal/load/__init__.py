"""Loads: the state of the marks, told to a loader."""
