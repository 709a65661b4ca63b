"""A local copy of all objects of a kind, kept current by list and watch, and the changes as they happen.

Theory of operation: list once, page by page; then watch from the list's version. Every event and bookmark
moves that version on, so a broken connection continues where it stopped. When the server no longer keeps the
version (410), or answers with any other error, list again; `Mirror` turns the differences into changes, so
that no deletion is missed. Where an object cannot be decoded, its last valid state stays, or what could be
decoded of it replaces it (`remainders`); it is reported once, and again when it is malformed in another way.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final, Generic, NoReturn, TypeVar

from corelane.kube.apierrors import APIError, Unreachable
from corelane.kube.client import KubeClient
from corelane.kube.decode import Listing, Malformed, WatchEvent
from corelane.kube.meta import Object

T = TypeVar("T", bound=Object)
Key = tuple[str, str]

QUIET_SECONDS: Final = 70.0
"""Upstream sends a bookmark every minute; a watch without a byte for longer counts as broken."""
_FIRST_DELAY: Final = 0.25
_LONGEST_DELAY: Final = 30.0
ABSENT_SECONDS: Final = 300.0
"""Longest time between two lists of an optional kind that is not served."""
_SHORTEST_WATCH: Final = 1.0
_SLICE_SECONDS: Final = 0.005
"""Changes are handled for this long before other tasks run: handlers differ in cost, so none are counted."""


@dataclass(frozen=True, slots=True)
class ObjectChange(Generic[T]):
    """A change of an object: `old` is None when it was added, `new` when it was deleted."""

    old: T | None
    new: T | None


class InformerReporter:
    """Hooks for logs and metrics, empty by default."""

    def listed(self, kind: type[Object], objects: int) -> None:
        """All objects were listed, at the start or after a broken watch."""

    def not_served(self, kind: type[Object]) -> None:
        """An optional kind does not exist on this server; it is looked for again."""

    def watching(self, kind: type[Object], objects: int) -> None:
        """A watch was opened: from now on changes are seen, and those since the last one."""

    def malformed(self, bad: Malformed) -> None:
        """An object was left out because it cannot be decoded."""

    def malformed_gone(self, bad: Malformed) -> None:
        """An object that could not be decoded was deleted."""

    def retrying(self, kind: type[Object], error: APIError, seconds: float) -> None:
        """A request failed, and is repeated after `seconds`."""

    def recovered(self, kind: type[Object]) -> None:
        """A watch continues after failures, without a list."""


class Mirror(Generic[T]):
    """The copy itself: listings and events in, changes out; no I/O."""

    def __init__(self) -> None:
        self._objects: dict[Key, T] = {}

    @property
    def objects(self) -> Mapping[Key, T]:
        return MappingProxyType(self._objects)

    def replace(self, listing: Listing[T]) -> Iterator[ObjectChange[T]]:
        """Replace the copy by a list, one object with each step, and yield the changes: deletions first."""
        present = {item.key for item in listing.items} | {bad.key for bad in listing.malformed}
        for key in [key for key in self._objects if key not in present]:
            yield from self._drop(key)
        for item in listing.items:
            yield from self._put(item)

    def apply(self, event: WatchEvent[T]) -> list[ObjectChange[T]]:
        """Apply one event of a watch, and return the changes."""
        if event.type == "DELETED":
            deleted = event.object or event.malformed
            return [] if deleted is None else self._drop(deleted.key, event.object)
        return [] if event.object is None else self._put(event.object)

    def _drop(self, key: Key, last: T | None = None) -> list[ObjectChange[T]]:
        old = self._objects.pop(key, None)
        return [] if old is None else [ObjectChange(last or old, None)]

    def _put(self, new: T) -> list[ObjectChange[T]]:
        old = self._objects.get(new.key)
        self._objects[new.key] = new
        if old is None:
            return [ObjectChange(None, new)]
        if old.metadata.uid != new.metadata.uid:
            return [ObjectChange(old, None), ObjectChange(None, new)]
        if old.metadata.resource_version == new.metadata.resource_version:
            return []
        return [ObjectChange(old, new)]


class Informer(Generic[T]):
    """Keeps a `Mirror` current and hands every change, in order, to `handler` (which must not block)."""

    def __init__(
        self,
        client: KubeClient,
        kind: type[T],
        *,
        handler: Callable[[ObjectChange[T]], None] = lambda _: None,
        namespace: str | None = None,
        label_selector: str | None = None,
        field_selector: str | None = None,
        reporter: InformerReporter | None = None,
        rng: random.Random | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        quiet_seconds: float = QUIET_SECONDS,
        optional: bool = False,
        absent_seconds: float = ABSENT_SECONDS,
        older: type[T] | None = None,
        remainders: bool = False,
        cached: bool = False,
    ) -> None:
        """An `optional` kind may not be served (404): then there are no objects of it, until it is.

        It is listed again after 30 s, doubled each time up to `absent_seconds`, less up to half at random.
        `older` is the kind in an older version of its API, read where the server has no newer one.
        With `remainders`, what a malformed object occupies is kept as the object. `cached` is for objects
        of which any recent state will do: the first list is from the server's cache, as client-go's are.
        """
        self.kind = kind
        self._newest, self._older = kind, older
        self._client = client
        self._handler = handler
        self._where: dict[str, Any] = {
            "namespace": namespace,
            "label_selector": label_selector,
            "field_selector": field_selector,
        }
        self._reporter = reporter or InformerReporter()
        self._random = rng or random.Random()  # noqa: S311 - jitter, not secrets
        self._sleep = sleep
        self._quiet = quiet_seconds
        self._optional = optional
        self._absent_seconds = absent_seconds
        self._remainders = remainders
        self._cached = cached
        self._mirror: Mirror[T] = Mirror()
        self._malformed: dict[Key, Malformed] = {}
        self._synced = asyncio.Event()
        self._version = ""
        self._failures = 0
        self._absences = 0
        """Lists in a row that said that the kind is not served."""
        self._open = False
        """Whether the server answered the present watch."""

    @property
    def objects(self) -> Mapping[Key, T]:
        """The copy, by namespace and name: a live view, valid until the next await."""
        return self._mirror.objects

    async def synced(self) -> None:
        """Wait until the first list is copied and its changes are handled."""
        await self._synced.wait()

    async def run(self) -> NoReturn:
        """Keep the copy current until cancelled."""
        while True:
            try:
                if not self._version:
                    listing = await self._listing()
                    await self._replace(listing)
                    self._absences = 0
                    self._reporter.listed(self.kind, len(listing.items))
                    self._synced.set()
                await self._watch()
            except Unreachable as error:
                await self._back_off(error)
            except APIError as error:
                self._version = ""
                if self._optional and error.code == 404:  # not defined, or no longer
                    await self._replace(Listing((), ""))
                    self._reporter.not_served(self.kind)
                    self._synced.set()
                    longest = min(self._absent_seconds, _LONGEST_DELAY * 2.0**self._absences)
                    self._absences = min(self._absences + 1, 30)
                    await self._sleep(longest * self._random.uniform(0.5, 1.0))
                else:
                    await self._back_off(error)

    async def _listing(self) -> Listing[T]:
        """List the kind in the newest version that is served."""
        self.kind = self._newest
        where = self._where | {"cached": True} if self._cached and not self._synced.is_set() else self._where
        try:
            return await self._client.list(self.kind, **where)
        except APIError as error:
            if error.code != 404 or self._older is None:
                raise
        self.kind = self._older
        return await self._client.list(self.kind, **where)

    async def _replace(self, listing: Listing[T]) -> None:
        before, self._malformed = self._malformed, {bad.key: bad for bad in listing.malformed}
        known = {(bad.key, bad.uid, bad.error) for bad in before.values()}
        for bad in listing.malformed:
            if (bad.key, bad.uid, bad.error) not in known:
                self._reporter.malformed(bad)
        if before:
            present = {item.key for item in listing.items} | self._malformed.keys()
            for key in before.keys() - present:
                self._reporter.malformed_gone(before[key])
        if self._remainders and listing.malformed:
            left = [bad.remainder for bad in listing.malformed if bad.remainder is not None]
            listing = replace(listing, items=(*listing.items, *left))
        pace = _Pace()
        for change in self._mirror.replace(listing):
            self._handler(change)
            if pace.over():
                await pace.pause()
        self._version = listing.resource_version

    async def _watch(self) -> None:
        """Follow the changes until the server ends the watch, as it does after some minutes."""
        loop = asyncio.get_running_loop()
        begun, self._open = loop.time(), False
        events = self._client.watch(
            self.kind,
            resource_version=self._version,
            quiet_seconds=self._quiet,
            opened=self._on_open,
            **self._where,
        )
        pace = _Pace()
        try:
            async with aclosing(events):
                async for event in events:
                    if pace.over():
                        await pace.pause()
                    if self._failures:
                        self._failures = 0
                        self._reporter.recovered(self.kind)
                    self._apply(event)
        except Unreachable:
            if not self._open or loop.time() - begun < self._quiet:
                raise
            self._failures = 0  # A server sends nothing about a kind that never had an event.
        if loop.time() - begun < _SHORTEST_WATCH:
            raise Unreachable(f"the watch of {self.kind.api.plural} ended at once")

    def _on_open(self) -> None:
        self._open = True
        self._reporter.watching(self.kind, len(self._mirror.objects))

    def _apply(self, event: WatchEvent[T]) -> None:
        if event.malformed and event.type == "DELETED":
            self._malformed.pop(event.malformed.key, None)
            self._reporter.malformed_gone(event.malformed)
        elif bad := event.malformed:
            before, self._malformed[bad.key] = self._malformed.get(bad.key), bad
            if before is None or (before.uid, before.error) != (bad.uid, bad.error):
                self._reporter.malformed(bad)
            if self._remainders:
                event = replace(event, object=bad.remainder)
        elif event.object is not None:
            self._malformed.pop(event.object.key, None)
        self._version = event.resource_version or self._version
        for change in self._mirror.apply(event):
            self._handler(change)

    async def _back_off(self, error: APIError) -> None:
        longest = min(_LONGEST_DELAY, _FIRST_DELAY * 2.0**self._failures)
        self._failures = min(self._failures + 1, 30)
        seconds = max(float(error.retry_after), longest * self._random.uniform(0.5, 1.0))
        self._reporter.retrying(self.kind, error, seconds)
        await self._sleep(seconds)


class _Pace:
    """Lets other tasks run after every slice of time: one chunk of a watch may hold hundreds of events."""

    def __init__(self) -> None:
        self._now = asyncio.get_running_loop().time
        self._end = self._now() + _SLICE_SECONDS

    def over(self) -> bool:
        return self._now() >= self._end

    async def pause(self) -> None:
        await asyncio.sleep(0)
        self._end = self._now() + _SLICE_SECONDS
