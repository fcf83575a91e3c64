"""Activation: how a standby is kept ready, and how a node becomes the one that may write."""
