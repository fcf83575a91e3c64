"""Local storage: what a replica or worker keeps on its own disk, and may lose."""
