"""Spark sessions: packages, settings, failures."""
