"""How a client's requests reach an API server: over HTTP (`connection`), or within one process.

Both raise `connection.NETWORK_ERRORS` where there is no whole answer.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol


class AnswerTooLongError(Exception):
    """An answer has more bytes than are read."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer."""

    status: int
    reason: str
    body: bytes
    retry_after: str = ""
    """Text of the header."""


class Chunks(Protocol):
    """A body that is read as it comes."""

    def iter_any(self) -> AsyncIterator[bytes]: ...


class Response(Protocol):
    """The head of an answer, whose body is not read yet."""

    @property
    def status(self) -> int: ...

    @property
    def reason(self) -> str | None: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    @property
    def content(self) -> Chunks: ...


class Transport(Protocol):
    """Requests to one API server."""

    @property
    def server(self) -> str:
        """The server's URL, or other name."""

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str],
        read_seconds: float | None = ...,
    ) -> AbstractAsyncContextManager[Response]:
        """Send a request without a body; `read_seconds` is the longest silence."""

    async def call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        seconds: float | None = None,
    ) -> Answer:
        """Send a request, and read the whole answer, within `seconds` in all if given."""

    async def renew(self) -> bool:
        """Read the credentials again; return whether they changed."""

    async def close(self) -> None:
        """Release what is open."""
