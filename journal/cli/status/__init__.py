"""The command `status` and its parts."""
