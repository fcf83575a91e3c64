"""Bytes to values and back: frames, keys, rows, ids."""
