"""The write-ahead log: fencing, the writer of groups, and readers."""
