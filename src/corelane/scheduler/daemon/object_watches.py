"""Informers of the kinds that a scheduler can do without; it goes on if some cannot be watched."""

import asyncio
from collections.abc import Collection
from typing import Any, Final

from corelane.kube import keys
from corelane.kube.apierrors import APIError
from corelane.kube.client import KubeClient
from corelane.kube.decode import Malformed
from corelane.kube.informer import Informer, InformerReporter, ObjectChange
from corelane.kube.meta import Object
from corelane.kube.objects import Lease, PodDisruptionBudget
from corelane.kube.translate.crane import CraneTopology
from corelane.scheduler import events
from corelane.scheduler.binding.binder import now

KINDS: Final[tuple[type[Object], ...]] = (Lease, *events.OBJECTS, CraneTopology, PodDisruptionBudget)
_ABSENT: Final = {403, 404, 405}
"""Answers that say that a kind is not served, or not to this client."""


class ObjectWatches:
    """Informers of `KINDS`; their changes go to the core as events."""

    def __init__(
        self,
        client: KubeClient,
        core: events.EventSink,
        reporter: InformerReporter,
        unserved: Collection[type[Object]] = (),
    ) -> None:
        """`unserved` are kinds that the server is known not to serve: it is not asked for them."""
        self._watches = [_Watch(client, kind, core, reporter) for kind in KINDS if kind not in unserved]

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for watch in self._watches:
                tasks.create_task(watch.informer.run())

    async def settled(self) -> None:
        """Wait until each kind is listed, or known not to be available."""
        for watch in self._watches:
            await watch.settled.wait()


class _Watch(InformerReporter):
    """One informer, and what became of its requests."""

    def __init__(
        self,
        client: KubeClient,
        kind: type[Object],
        core: events.EventSink,
        reporter: InformerReporter,
    ) -> None:
        def changed(change: ObjectChange[Any]) -> None:
            core.handle(events.ObjectChanged(now(), change.old, change.new))

        self.settled = asyncio.Event()
        self._core, self._reporter = core, reporter
        self._unwatched = False
        self.informer: Informer[Any] = Informer(
            client,
            kind,
            handler=changed,
            reporter=self,
            optional=kind.api.optional,
            remainders=kind is not Lease,
            namespace=keys.AGENT_NAMESPACE if kind is Lease else None,
            label_selector=keys.AGENT_SELECTOR if kind is Lease else None,
        )

    def listed(self, kind: type[Object], objects: int) -> None:
        self._reporter.listed(kind, objects)
        self._seen(kind, works=True)
        if self._unwatched:
            self._unwatched = False
            self._core.handle(events.Unwatched(now(), kind.api.plural, ""))
        self.settled.set()

    def not_served(self, kind: type[Object]) -> None:
        self._reporter.not_served(kind)
        self.settled.set()

    def watching(self, kind: type[Object], objects: int) -> None:
        self._reporter.watching(kind, objects)
        self._seen(kind, works=True)

    def malformed(self, bad: Malformed) -> None:
        self._reporter.malformed(bad)

    def malformed_gone(self, bad: Malformed) -> None:
        self._reporter.malformed_gone(bad)

    def retrying(self, kind: type[Object], error: APIError, seconds: float) -> None:
        self._reporter.retrying(kind, error, seconds)
        self._seen(kind, works=False)
        if error.code in _ABSENT:
            if not self._unwatched:
                self._unwatched = True
                self._core.handle(events.Unwatched(now(), kind.api.plural, str(error)))
            self.settled.set()

    def recovered(self, kind: type[Object]) -> None:
        self._reporter.recovered(kind)
        self._seen(kind, works=True)

    def _seen(self, kind: type[Object], *, works: bool) -> None:
        if kind is Lease:
            self._core.handle(events.AgentLeasesWatched(now(), works))
