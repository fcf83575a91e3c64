"""What `status` shows."""
