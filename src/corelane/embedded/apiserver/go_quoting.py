"""Text in quotes."""

from corelane.embedded.apiserver.status_errors import quoted

__all__ = ["quoted"]
