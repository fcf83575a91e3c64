"""Bodies of messages: cached, in chunks, and on disk."""
