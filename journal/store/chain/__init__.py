"""A store beside the active node, in lockstep with it."""
