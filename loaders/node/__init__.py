"""A node's life: standby, active, and the way between."""
