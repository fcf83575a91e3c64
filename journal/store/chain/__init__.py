"""A chain of stores: further stores that do every operation of the first one."""
