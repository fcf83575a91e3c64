"""What a process needs of its machine: clocks, threads, signals, files and limits."""
