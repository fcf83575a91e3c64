"""The commands for routes and sources."""
