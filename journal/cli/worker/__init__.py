"""The commands that run workers."""
