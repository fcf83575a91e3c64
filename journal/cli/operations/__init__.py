"""The operations of the commands, each written once. They run over a read-only load, in a command that is the active
node itself, or in a running node."""
