"""The command `verify` and its parts."""
