"""Memory of the process of `corelane up`: one arena, freed pages returned, no certificate authorities.

glibc gives every thread an arena of its own, up to eight a CPU, and what one of them freed stays with it.
Under Python's lock threads do not allocate at the same time, so they lose nothing by sharing one. Another C
library, without these functions, is left as it is.

aiohttp reads the system's certificate authorities when it is imported, 1.6 MB, for requests to other servers.
`corelane up` makes none: this module imports aiohttp without them, before any other does.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import time
from asyncio import sslproto
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_ARENA_MAX: Final = -8
"""M_ARENA_MAX of glibc's malloc.h."""
_RECORD: Final = 16 * 1024
PERIOD: Final = 60.0
"""Seconds between two collections of garbage of all ages."""
_FILE: Final = "SSL_CERT_FILE"
"""Variable of OpenSSL: the file with the authorities of a default context."""


def share_one_arena() -> None:
    """Let all threads allocate from the main arena; called before there are any."""
    _call("mallopt", ctypes.c_int(_ARENA_MAX), ctypes.c_int(1))


def return_freed() -> None:
    """Return freed pages to the system; called when the start has left many."""
    _call("malloc_trim", ctypes.c_size_t(0))


def bound_tls_buffers() -> None:
    """Read a TLS record, 16 KiB, at once: asyncio keeps 256 KiB for every connection, all of it written."""
    setattr(sslproto.SSLProtocol, "max_size", _RECORD)  # noqa: B010 - a constant to type checkers


async def keep_small(period: float = PERIOD) -> None:
    """Collect garbage of all ages, and return freed pages, until cancelled.

    Python itself would not: what is listed is frozen, see `scheduler.daemon.garbage`, and what was made since
    is collected by its youth alone. Takes at most a hundredth of the time.
    """
    pause = period
    while True:
        await asyncio.sleep(pause)
        begun = time.thread_time()
        gc.collect()
        return_freed()
        pause = max(period, 100 * (time.thread_time() - begun))


def _call(name: str, *values: ctypes.c_int | ctypes.c_size_t) -> None:
    function = getattr(ctypes.CDLL(None), name, None)
    if function is not None:
        function(*values)


@contextmanager
def _without_authorities() -> Iterator[None]:
    before = os.environ.get(_FILE)
    os.environ[_FILE] = os.devnull
    try:
        yield
    finally:
        if before is None:
            del os.environ[_FILE]
        else:
            os.environ[_FILE] = before


with _without_authorities():
    import aiohttp  # noqa: F401
