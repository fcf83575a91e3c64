"""The reader process: it fetches a worker's WAL records ahead."""
