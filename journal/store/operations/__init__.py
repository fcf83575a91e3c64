"""The store's operations, a file each."""
