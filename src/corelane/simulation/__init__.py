"""Nodes that exist only as a description of hardware."""
