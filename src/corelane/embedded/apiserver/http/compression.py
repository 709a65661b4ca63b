"""Answers gzipped for clients that ask for it.

As upstream (k8s.io/apiserver, endpoints/handlers/responsewriters/writers.go): objects and lists of more than
128 KiB, at the fastest level, if `gzip` stands among the values of Accept-Encoding; never watches and logs.
"""

import asyncio
import zlib
from collections.abc import Mapping
from typing import Final

from aiohttp import web

_THRESHOLD: Final = 128 * 1024
_GZIP: Final = 16 + zlib.MAX_WBITS


def is_asked_for(headers: Mapping[str, str]) -> bool:
    """Whether a request's headers ask for gzip; a value with a weight is none, as upstream."""
    return "gzip" in (value.strip() for value in headers.get("Accept-Encoding", "").split(","))


async def compress(headers: Mapping[str, str], answer: web.Response) -> web.Response:
    """Gzip a long answer to a request with these headers, in a thread."""
    body = answer.body
    if isinstance(body, bytes) and len(body) > _THRESHOLD and is_asked_for(headers):
        answer.body = await asyncio.to_thread(_gzipped, body)
        answer.headers["Content-Encoding"] = "gzip"
        answer.headers.add("Vary", "Accept-Encoding")
    return answer


def _gzipped(body: bytes) -> bytes:
    compressor = zlib.compressobj(level=1, wbits=_GZIP)
    return compressor.compress(body) + compressor.flush()
