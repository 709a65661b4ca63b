"""Watches of every kind on one server, through its deaths: each keeps a picture to compare with a list."""

import asyncio
import itertools
import json
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp
from soak_up import API, NoAnswer, Object

JSON: Final = "application/json"
TABLE: Final = "application/json;as=Table;v=v1;g=meta.k8s.io"
METADATA: Final = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
FORMS: Final = (JSON, TABLE, METADATA)
MODES: Final = ("resume", "resume-bookmarks", "initial", "stream", "resume-short")
"""How a watch begins and goes on: from a list's version, with bookmarks, and with the client's timeout; from
the present state as synthetic events, each time anew; or by the initial events of a streaming list."""
_RETRY: Final = 0.2
_LARGEST_LINE: Final = 1 << 22


class Relist(Exception):  # noqa: N818 - a state
    """The server cannot continue the watch where it ended."""


@dataclass(eq=False)
class Watch:
    """One watch: `versions` is its picture, resource version by `namespace/name`."""

    path: str
    mode: str
    form: str
    selector: str = ""
    versions: dict[str, int] = field(default_factory=dict)
    version: str = ""
    synced: bool = False
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def title(self) -> str:
        return f"{self.path}?{self.selector} {self.mode} {self.form.partition(';')[2][:8]}"

    def query(self) -> str:
        wanted = {
            "resume": f"resourceVersion={self.version}",
            "resume-bookmarks": f"resourceVersion={self.version}&allowWatchBookmarks=true",
            "resume-short": f"resourceVersion={self.version}&timeoutSeconds=40",
            "initial": "resourceVersion=0",
            "stream": "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
        }[self.mode]
        return "&".join(part for part in ("watch=1", wanted, self.selector) if part)

    @property
    def resumes(self) -> bool:
        return self.mode.startswith("resume")

    def apply(self, event: Object) -> None:
        """Raises Relist."""
        kind, obj = event["type"], event["object"]
        if kind == "ERROR":
            raise Relist(f"{obj.get('code')} {obj.get('reason')}")
        for metadata in _metadata(obj):
            self.version = metadata.get("resourceVersion", self.version)
            if kind != "BOOKMARK":
                key = f"{metadata.get('namespace', '')}/{metadata['name']}"
                if kind == "DELETED":
                    self.versions.pop(key, None)
                else:
                    self.versions[key] = int(metadata["resourceVersion"])
        if kind == "BOOKMARK":
            self.synced = True
        self.counts[kind.lower()] += 1


def _metadata(obj: Object) -> list[Object]:
    if obj.get("kind") == "Table":
        rows = obj.get("rows") or [{"object": {"metadata": obj.get("metadata", {})}}]
        return [row["object"]["metadata"] for row in rows]
    return [obj["metadata"]]


class Watches:
    """Holds the watches open, and opens them again when the server was killed."""

    def __init__(self, api: API, chance: random.Random, count: int) -> None:
        self.api, self.chance, self.count = api, chance, count
        self.all: list[Watch] = []
        self.tasks: dict[int, asyncio.Task[None]] = {}

    async def open(self) -> None:
        paths = await self._paths()
        combinations = [
            (path, mode, form, selector)
            for (mode, form, selector), path in zip(self._kinds(), itertools.cycle(paths), strict=False)
        ]
        self.all = [Watch(*one) for one in combinations[: max(self.count, len(paths))]]
        for number in range(len(self.all)):
            self.tasks[number] = asyncio.create_task(self._hold(self.all[number]))

    async def relist(self, watches: list[Watch]) -> None:
        """Begin watches anew, as a client does after the server has lost the history that they go on from."""
        for number, watch in enumerate(self.all):
            if watch in watches:
                self.tasks[number].cancel()
                await asyncio.gather(self.tasks[number], return_exceptions=True)
                watch.version = ""
                self.tasks[number] = asyncio.create_task(self._hold(watch))

    def _kinds(self) -> list[tuple[str, str, str]]:
        kinds = [*itertools.product(MODES, FORMS, ("", "", "labelSelector=soak%21%3Djob"))]
        self.chance.shuffle(kinds)
        return kinds * 5

    async def _paths(self) -> list[str]:
        """Every collection that can be watched, and pods and events in a namespace, too."""
        bases = ["/api/v1"]
        _, groups = await self.api.request("GET", "/apis")
        bases += [f"/apis/{one['groupVersion']}" for group in groups["groups"] for one in group["versions"]]
        paths = ["/api/v1/namespaces/default/pods", "/api/v1/namespaces/default/events"]
        for base in bases:
            _, resources = await self.api.request("GET", base)
            paths += [f"{base}/{one['name']}" for one in resources["resources"] if "watch" in one["verbs"]]
        return paths

    async def close(self) -> None:
        for task in self.tasks.values():
            task.cancel()
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)

    async def _hold(self, watch: Watch) -> None:
        while True:
            try:
                if not watch.resumes or not watch.version:
                    watch.versions, watch.synced = {}, False
                if watch.resumes and not watch.version:
                    await self._list(watch)
                await self._stream(watch)
            except (
                Relist,
                NoAnswer,
                aiohttp.ClientError,
                TimeoutError,
                OSError,
                RuntimeError,
                ValueError,
            ) as error:
                if isinstance(error, Relist):
                    watch.version = ""
                    watch.counts[f"relist: {error}"] += 1
                else:
                    watch.counts[f"broken off: {type(error).__name__}"] += 1
                await asyncio.sleep(_RETRY + self.chance.random() * _RETRY)

    async def _list(self, watch: Watch) -> None:
        """Take the picture from a list. Raises NoAnswer."""
        status, answer = await self.api.request("GET", f"{watch.path}?{watch.selector}")
        if status != 200:
            raise NoAnswer(str(answer))
        watch.versions = _versions(answer)
        watch.version, watch.synced = answer["metadata"]["resourceVersion"], True

    async def _stream(self, watch: Watch) -> None:
        """Follow the watch until it ends, on a connection of its own."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=5)
        url = f"{self.api.url}{watch.path}?{watch.query()}"
        async with (
            self.api.new_session(timeout) as session,
            session.get(url, headers={"Accept": watch.form}, read_bufsize=_LARGEST_LINE) as answer,
        ):
            if answer.status != 200:
                raise Relist(f"HTTP {answer.status}")
            watch.counts["opened"] += 1
            async for line in answer.content:
                watch.apply(json.loads(line))
            watch.counts["ended"] += 1

    async def disagreements(self, seconds: float = 20.0) -> list[str]:
        """Compare every picture with a list; return those that do not agree after some seconds."""
        deadline = time.monotonic() + seconds
        pending = list(self.all)
        while True:
            faults, lists = [], {}
            for watch in pending:
                address = f"{watch.path}?{watch.selector}"
                if address not in lists:
                    lists[address] = await self._current(address)
                faults += [(watch, fault) for fault in _differences(watch, lists[address])]
            pending = [watch for watch, _ in faults]
            if not faults or time.monotonic() > deadline:
                await self.relist(pending)
                return [
                    f"watch {watch.title} at {watch.version}: {fault}; {dict(watch.counts)}"
                    for watch, fault in faults
                ]
            await asyncio.sleep(0.5)

    async def _current(self, address: str) -> dict[str, int]:
        try:
            status, answer = await self.api.request("GET", address)
        except NoAnswer:
            return {}
        return _versions(answer) if status == 200 else {}

    def counts(self) -> dict[str, int]:
        return dict(sum((watch.counts for watch in self.all), Counter()))


def _versions(answer: Any) -> dict[str, int]:
    metadata = (one["metadata"] for one in answer["items"])
    return {f"{one.get('namespace', '')}/{one['name']}": int(one["resourceVersion"]) for one in metadata}


def _differences(watch: Watch, current: dict[str, int]) -> list[str]:
    """The picture may be newer than the list, never older."""
    missing = sorted(current.keys() - watch.versions.keys())
    extra = sorted(watch.versions.keys() - current.keys())
    old = [key for key in current.keys() & watch.versions.keys() if watch.versions[key] < current[key]]
    parts = [
        f"{what} {names[:3]}"
        for what, names in (("lacks", missing), ("still has", extra), ("old", sorted(old)))
        if names
    ]
    return ["; ".join(parts)] if parts else []
