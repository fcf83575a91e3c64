"""What a process needs of its machine: clocks, threads, files and texts."""
