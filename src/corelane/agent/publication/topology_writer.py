"""The NodeResourceTopology at the API server: written when what admission depends on changes.

The object is written as v1alpha2, where the cluster does not serve that as v1alpha1, which has no attributes.
There is one writer of zones. Where another exporter owns them, only annotations are written; one that takes
them over later changes the object's version, without which zones are not written. The object has tens of
kilobytes: only the parts that changed are sent, and the answer shows whether the rest is as it was.
"""

import asyncio
import random
from collections.abc import Callable, Mapping
from typing import Any, Final

from corelane.agent.publication import stored_objects
from corelane.agent.publication.publisher import Publisher
from corelane.agent.publication.stored_objects import NodeObjects
from corelane.agent.publication.write_queue import PublicationReporter
from corelane.kube import translate
from corelane.kube.client import APIError, KubeClient
from corelane.kube.objects import NodeResourceTopology, NodeResourceTopologyV1Alpha1
from corelane.kube.translate.topology_zones import CONTENT, FIELD_MANAGER, without_zones, zone_owner
from corelane.reasons.scheduling import DEFINE_TOPOLOGIES

_DEBOUNCE: Final = 0.05
_JITTER: Final = 0.25
_RANDOM: Final = random.Random()  # noqa: S311 - jitter, not secrets


class PublishSchedule:
    """When to write an object that follows another one's changes: soon, one write for a burst, not often.

    A token bucket: `burst` writes at once, then one in `period` seconds, later by up to a quarter
    of it: the jitter keeps a cluster's agents from writing in step. Callers pass monotonic seconds.
    """

    def __init__(self, *, burst: int = 5, period: float = 0.5, rng: random.Random | None = None) -> None:
        self._burst, self._period = burst, period
        self._tokens = float(burst)
        self._at = 0.0
        self._random = rng or _RANDOM

    def due(self, now: float) -> float:
        """Return the time of the next write, which covers all changes until then."""
        elapsed = max(now - self._at, 0.0)
        self._tokens = min(self._tokens + elapsed / self._period, float(self._burst))
        wait = max(1.0 - self._tokens, 0.0) * self._period
        if wait:
            wait += self._period * self._random.uniform(0.0, _JITTER)
        self._at = now
        self._tokens -= 1.0
        return now + max(wait, _DEBOUNCE)


Make = Callable[[], dict[str, Any]]
_UNKNOWN: Final = "unknown"
_METADATA: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
_CONFLICTS: Final = 5
"""Changes by others between a look at the object and a write of the zones; after these it is written."""


class TopologyWriter:
    """Writes one node's object through its publisher's queue; another owner of the zones is reported."""

    def __init__(
        self,
        client: KubeClient,
        node: str,
        publisher: Publisher,
        reporter: PublicationReporter,
        schedule: PublishSchedule | None = None,
        objects: NodeObjects | None = None,
    ) -> None:
        """With `objects` the object is created, looked at and changed without requests."""
        self.owner = ""
        """The program beside corelane that owns the zones, "" where corelane does."""
        self.written = asyncio.Event()
        """Set once the object has been written."""
        self._client = client
        self._node = node
        self._publisher = publisher
        self._reporter = reporter
        self._schedule = schedule or PublishSchedule()
        self._timer: asyncio.TimerHandle | None = None
        self._make: Make | None = None
        self._objects = objects
        self._kind: type[NodeResourceTopology] = NodeResourceTopology
        """The version that the cluster serves, as far as is known."""
        self.version = ""
        """`resourceVersion` of the object as this writer left it, or found it whole; "" before."""
        self.repairs = 0
        """How often the object was missing or damaged."""
        self._written_last: dict[str, Any] | None = None
        """What this writer wrote last, if it is stored: what is equal is not sent again."""

    def write(self, make: Make) -> None:
        """Write what `make` returns then, once for all calls until the write is due."""
        self._make = make
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(self._schedule.due(loop.time()), self.flush)

    def flush(self) -> None:
        """Put a write that waits for its time into the queue."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._publisher.node_queue.put("topology", self._write, "topology")

    def repair(self, make: Make) -> None:
        """Write what `make` returns if the object lacks parts of it."""

        async def write() -> None:
            if await self._is_untouched():
                return
            stored = await self._stored()
            if stored is not None:
                self._note(stored)
            body = self._served(make())
            own = without_zones(body) if self.owner else body
            if stored is None or not stored_objects.agrees(stored, translate.as_patch(own)):
                self._written_last = None
                self.repairs += 1
                await self._put(body)

        self._publisher.node_queue.put("topology check", write, "topology")

    async def _is_untouched(self) -> bool:
        """Whether the object is as this writer left it. Raises APIError except 404."""
        if self._objects is not None:
            record = self._objects.get(NodeResourceTopology.api, self._node)
            return record is not None and str(record.revision) == self.version
        if self.version in ("", _UNKNOWN):
            return False
        try:
            stored = await self._client.read_tree(self._kind.api.path(name=self._node), accept=_METADATA)
        except APIError as error:
            if error.code != 404:
                raise
            return False
        return _version(stored) == self.version

    async def _write(self) -> None:
        assert self._make is not None
        body = self._make()
        if self.version or not await self._begin(body):
            await self._put(body)
        self.written.set()

    async def _begin(self, body: dict[str, Any]) -> bool:
        """Create the object, or look at the one that is there; return whether nothing is left to write.

        Raises APIError.
        """
        if self._objects is not None:
            record, is_new = self._objects.ensure(body, FIELD_MANAGER)
            await self._objects.committed()
            if is_new:
                self.version, self._written_last = str(record.revision), body
                return True
            stored: dict[str, Any] | None = record.object()
        else:
            stored = await self._stored()
        if stored is None:
            return await self._create(body)
        self._note(stored)
        body = self._served(body)
        if self.owner or not stored_objects.agrees(stored, translate.as_patch(body)):
            return False
        self._written_last = body
        return True

    async def _stored(self) -> dict[str, Any] | None:
        """Return the object at the API server. Raises APIError."""
        try:
            return await self._client.read_tree(self._kind.api.path(name=self._node))
        except APIError as error:
            if error.code != 404:
                raise
            return None

    def _served(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return the object in the version that the cluster serves."""
        return body if self._kind is NodeResourceTopology else translate.as_v1alpha1(body)

    async def _create(self, body: dict[str, Any]) -> bool:
        """Create the object; where its version is not served, begin anew with the other one.

        Return whether nothing is left to write. Raises APIError.
        """
        body = self._served(body)
        try:
            self._note(await self._client.create(body, field_manager=FIELD_MANAGER))
        except APIError as error:
            if error.code != 404:
                raise
            tried, self._kind = self._kind, NodeResourceTopology
            if tried is NodeResourceTopologyV1Alpha1:
                what = "the API server serves neither topology.node.k8s.io/v1alpha2 nor v1alpha1"
                message = f"{what}; define NodeResourceTopology: {DEFINE_TOPOLOGIES}"
                raise APIError(404, error.reason, message) from error
            self._kind = NodeResourceTopologyV1Alpha1
            return await self._begin(body)
        self._written_last = body
        return True

    async def _put(self, body: dict[str, Any]) -> None:
        """Patch what changed since the last write, or create the object. Raises APIError.

        All of it is written where others changed or removed parts meanwhile.
        """
        body = self._served(body)
        owner, before, self._written_last = self.owner, self._written_last, None
        own = without_zones(body) if owner else body
        patch = translate.as_patch(own, before)
        if before is not None and not owner and await self._merged(patch):
            self._written_last = own
            return
        try:
            stored = await self._patch(patch, owner)
        except APIError as error:
            if error.code != 404:
                raise
            if not await self._create(body):
                await self._put(body)
            return
        self._note(stored)
        if self.owner == owner and stored_objects.agrees(stored, translate.as_patch(own)):
            self._written_last = own
        elif (owner and not self.owner) or (before is not None and self.owner == owner):
            await self._put(body)

    async def _patch(self, patch: dict[str, Any], owner: str) -> dict[str, Any]:
        """Patch the object, its zones only as this writer left it. Raises APIError.

        If others changed it meanwhile, it is read: a new owner of the zones keeps them.
        """
        for _ in range(_CONFLICTS):
            if owner or self.version in ("", _UNKNOWN) or not patch.keys() & set(CONTENT):
                break
            metadata = patch.get("metadata", {}) | {"resourceVersion": self.version}
            try:
                return await self._send({**patch, "metadata": metadata})
            except APIError as error:
                stored = await self._stored() if error.code == 409 else None
                if stored is None:
                    raise
            self._note(stored)
            if owner := self.owner:
                patch = without_zones(patch)
        return await self._send(patch)

    async def _send(self, patch: dict[str, Any]) -> dict[str, Any]:
        return await self._client.patch(self._kind, self._node, patch, field_manager=FIELD_MANAGER)

    async def _merged(self, patch: dict[str, Any]) -> bool:
        """Merge changes into the object without a request, if it is as this writer left it.

        Raises APIError.
        """
        if self._objects is None:
            return False
        record = self._objects.merge(NodeResourceTopology.api, self._node, patch, FIELD_MANAGER, self.version)
        if record is None:
            return False
        await self._objects.committed()
        self.version = str(record.revision)
        return True

    def _note(self, stored: dict[str, Any]) -> None:
        before, self.owner = self.owner, zone_owner(stored)
        self.version = _version(stored)
        if self.owner not in ("", before):
            self._reporter.zones_owned_by(self.owner)
            text = (
                f"NodeResourceTopology {self._node}: zones are written by {self.owner}, annotations by "
                "corelane; stop the other exporter and delete the object to have corelane write the zones, "
                "too"
            )
            self._publisher.event(None, "TopologyZonesForeign", text, warning=True)


def _version(stored: Mapping[str, Any]) -> str:
    return str(stored.get("metadata", {}).get("resourceVersion") or _UNKNOWN)
