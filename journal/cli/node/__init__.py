"""The commands that run and steer nodes."""
