"""The reader, in a process of its own: it fetches a worker's WAL records ahead."""
