"""What the suite does to brokers, nodes and workers: stops them, cuts, slows and loses their packets, spoils disks."""
