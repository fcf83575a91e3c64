"""The operations of the commands, each written once. They run over a read-only load, in the command as the active node,
or in a running node."""
