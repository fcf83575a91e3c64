"""The operations of the message store, each group of them in a file."""
