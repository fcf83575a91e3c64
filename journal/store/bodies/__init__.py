"""The bodies of messages: in a cache, in chunks, and in swap files."""
