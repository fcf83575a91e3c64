"""The journal's topics: their names, control rows, marks and settings."""
