"""Local copies on this machine's disk, which a replica or a worker can lose and build again."""
