"""Activation: how a node becomes the one that may write."""
