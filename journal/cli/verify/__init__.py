"""What `verify` checks."""
