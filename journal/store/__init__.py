"""The message store: a broker writes messages to it, and gets them back from queues."""
