"""Writes: patches, admission, defaults, the optimistic lock, binding and deletion."""
