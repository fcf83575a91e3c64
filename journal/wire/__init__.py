"""The bytes of the journal and their values: frames, operations, keys, rows, ids."""
