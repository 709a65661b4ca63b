"""Pods without a node: which is tried next, and which wait for what. Modules are imported by name."""
