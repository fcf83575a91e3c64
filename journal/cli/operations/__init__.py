"""What commands do with a journal, written once: over a read-only load, as the active node, or inside a
running node."""
