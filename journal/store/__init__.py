"""The message store: what a broker writes, and what it gets back as queues."""
