"""Processes under test, and whoever starts, tells, stops and kills them."""
