"""What can be wrong with a node's settings."""

__all__ = ["NodeConfigError"]


class NodeConfigError(ValueError):
    """A setting that cannot be honoured, at all or on this machine: says which, its value, and what to do."""
