"""The daemons' log: structlog, without the libraries that it loads only to colour a terminal.

structlog.dev imports rich and better_exceptions where they are installed: 3 MB of memory in every daemon, for
a renderer that none of them uses. structlog works without them.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

__all__ = ["get_logger", "structlog"]

_UNUSED: Final = ("rich", "better_exceptions")


@contextmanager
def _hidden(*names: str) -> Iterator[None]:
    """Let imports of these packages fail meanwhile."""
    before = {name: sys.modules.get(name) for name in names}
    sys.modules.update(dict.fromkeys(names))  # type: ignore[arg-type]  # None: not importable
    try:
        yield
    finally:
        for name, module in before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module


with _hidden(*_UNUSED):
    import structlog

get_logger: Final = structlog.get_logger
