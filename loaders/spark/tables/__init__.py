"""Tables of messages and queues that a job keeps up to date."""
