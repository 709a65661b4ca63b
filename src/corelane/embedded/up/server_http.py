"""aiohttp as the server needs it: without the system's certificate authorities.

aiohttp reads all of them when it is imported, 1.6 MB, for requests to other servers. `corelane up` makes
none: its parts reach the API server within the process. To be imported before anything that imports aiohttp.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_FILE: Final = "SSL_CERT_FILE"
"""Variable of OpenSSL: the file with the authorities of a default context."""


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
