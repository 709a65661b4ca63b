"""What handlers read of a request: one that came over HTTP (aiohttp's), or one from this process."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from multidict import CIMultiDict, MultiDict, MultiMapping


class Chunks(Protocol):
    """A body that is read as it comes."""

    def iter_any(self) -> AsyncIterator[bytes]: ...


class Request(Protocol):
    """A request whose body is not read yet; `path` is decoded."""

    @property
    def method(self) -> str: ...

    @property
    def path(self) -> str: ...

    @property
    def host(self) -> str: ...

    @property
    def query(self) -> MultiMapping[str]: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    @property
    def content_length(self) -> int | None: ...

    @property
    def content(self) -> Chunks: ...


@dataclass(frozen=True, slots=True)
class Body:
    """A body that is there already."""

    data: bytes = b""

    async def iter_any(self) -> AsyncIterator[bytes]:
        if self.data:
            yield self.data


@dataclass(frozen=True, slots=True)
class LocalRequest:
    """A request from this process."""

    method: str
    path: str
    query: MultiMapping[str] = field(default_factory=MultiDict)
    headers: Mapping[str, str] = field(default_factory=CIMultiDict)
    content: Body = field(default_factory=Body)
    host: str = "localhost"

    @property
    def content_length(self) -> int:
        return len(self.content.data)
