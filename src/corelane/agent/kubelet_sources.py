"""What the agent reads of its kubelet, each source by itself: pods, configuration, and CPUs of containers."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Final, Protocol

from corelane.agent.allocation import events
from corelane.agent.allocation.events import AgentEvent
from corelane.agent.allocation.kubelet_pods import KubeletPods
from corelane.agent.allocation.records import RunCPUs
from corelane.agent.clocks import Clocks
from corelane.agent.kubelet_side import KubeletFacts, KubeletSide
from corelane.agent.node_watch import NodeWatch
from corelane.agent.pod_list import PodList
from corelane.agent.reporting import AgentReporter
from corelane.agent.source import Source, local_source, named_count
from corelane.kube.kubelet.errors import KubeletError
from corelane.node import NodeState
from corelane.node.kubelet.checkpoint import Checkpoint

CONFIGURATION_SECONDS: Final = 3.0
"""A changed kubelet configuration is published within 5 s, also of a kubelet that was down for long."""
FALLBACK_AFTER: Final = 3
"""Failures of the kubelet in a row after which pods are read from the API server."""


PROMPTS: Final = (0.2, 0.3, 0.5, 1.0, 2.0, 4.0)
"""Seconds between the end of a container with exclusive CPUs and lists of pods that may release them."""


class SourcesOwner(Protocol):
    """What the sources need of the agent."""

    reporter: AgentReporter
    clocks: Clocks
    machine: KubeletPods

    def put(self, event: AgentEvent) -> None: ...

    def runs(self) -> list[RunCPUs]: ...

    def allocated_pods(self) -> dict[str, str]:
        """Return `namespace/name` by UID of the pods that the ledger has."""

    def may_write(self) -> bool: ...

    def publish_kubelet_cpusets(self) -> None: ...


class KubeletSources:
    """The sources of one kubelet, none where `side` is None; `pods` are read every `seconds`."""

    def __init__(
        self,
        owner: SourcesOwner,
        side: KubeletSide | None,
        *,
        seconds: float,
        pods: PodList,
        node_watch: NodeWatch,
    ) -> None:
        self.pods = pods
        self._owner = owner
        self._side = side
        self._node_watch = node_watch
        self._awaited: set[str] = set()
        self._prompts: list[float] = []
        self._prompting: asyncio.TimerHandle | None = None
        self._reported: tuple[Checkpoint, frozenset[str] | None] | None = None
        source = partial(local_source, reporter=owner.reporter, clock=owner.clocks.wall)
        often = partial(source, seconds=CONFIGURATION_SECONDS)
        self.pods_source = source("kubelet pods", self._read_pods, seconds=seconds)
        self.configuration = often("kubelet configuration", self._read_configuration)
        self.state_file = often("kubelet state file", self._read_state)
        self.resources = often("kubelet podresources", self._read_resources)
        self.all = list(self._used(side)) if side else []

    def _used(self, side: KubeletSide) -> Iterator[Source]:
        yield from (self.pods_source, self.configuration)
        if side.has_state_file:
            yield self.state_file
        if side.has_resources:
            yield self.resources

    @property
    def facts(self) -> KubeletFacts | None:
        """What the kubelet said last; None without a kubelet."""
        return self._side.facts if self._side else None

    async def _read_pods(self) -> None:
        """Ask the kubelet for its pods; when it fails again and again, follow the API server instead."""
        assert self._side is not None
        await self._side.asked.wait()
        try:
            await self._side.read_pods(self._owner.allocated_pods())
        except Exception:
            if self.pods_source.state.retries + 1 >= FALLBACK_AFTER:
                self._node_watch.follow_pods(True)
            raise
        self._node_watch.follow_pods(False)
        self.pods_source.note_ok(named_count(len(self.pods.pods), "pod"))
        self._report_allocations()
        # The state file may have named the pods' CPUs before the kubelet listed them.
        self._owner.publish_kubelet_cpusets()

    def container_ended(self, uid: str) -> None:
        """Ask for the pods soon, and again, until a pod with exclusive CPUs is gone, has ended or runs."""
        if self._side is not None and _holds_cpus(self._owner.machine.ledger, uid):
            self._awaited.add(uid)
            self._prompts = list(PROMPTS)
            self._prompt()

    def _prompt(self) -> None:
        if self._prompting is not None:
            self._prompting.cancel()
        if self._prompts:
            loop = asyncio.get_running_loop()
            self._prompting = loop.call_later(self._prompts.pop(0), self._ask_for_ended)

    def _ask_for_ended(self) -> None:
        machine = self._owner.machine
        self._awaited = {
            uid
            for uid in self._awaited
            if (pod := machine.pods.get(uid)) and not pod.live and _holds_cpus(machine.ledger, uid)
        }
        if self._awaited:
            self.pods_source.wake()
            self._prompt()

    async def find_pod(self, uid: str, seconds: float) -> bool:
        """Whether a pod is known, after asking the kubelet if need be."""
        if uid not in self.pods.pods and self._side is not None:
            async with asyncio.timeout(seconds):
                await self._side.read_pods(self._owner.allocated_pods(), seconds / 2)
        return uid in self.pods.pods

    async def refresh(self, seconds: float = 0.0) -> None:
        """Read the kubelet's state file if it was replaced, before CPUs are decided or repaired.

        Drift may be the first sign of a kubelet that was started with policy static. It writes its file
        before any cpuset, and each cpuset once. Without the file, /configz is asked for so many `seconds`.
        """
        if self._side is None:
            return
        with suppress(OSError, KubeletError):  # reported by the source of its own
            if self._side.state_file_replaced:
                await self._read_state()
            elif seconds and not self._side.has_state_file:
                async with asyncio.timeout(seconds):
                    await self._read_configuration()

    async def _read_configuration(self) -> None:
        assert self._side is not None
        await self._side.read_configuration()
        self._report_allocations()

    async def _read_state(self) -> None:
        assert self._side is not None
        try:
            await self._side.read_state()
        finally:
            self._report_allocations()

    async def _read_resources(self) -> None:
        assert self._side is not None
        await self._side.asked.wait()
        self.resources.note_ok(await self._side.read_resources())
        self._report_allocations()

    @property
    def allocations(self) -> tuple[Checkpoint | None, str]:
        """The CPUs that the kubelet gave containers, and their source; None while nothing is known."""
        return self._side.facts.allocations(self.pods.uids()) if self._side else (None, "")

    def _running(self) -> frozenset[str] | None:
        """Return the UIDs of pods that run, by the list of pods or of containers; None before both.

        A kubelet that has just started does not list all of its pods.
        """
        listed, live = self.pods.running(), self._owner.machine.live_pods
        return None if listed is None or live is None else listed | live

    def _report_allocations(self) -> None:
        """Report the CPUs that the kubelet pinned, where they or its pods changed."""
        checkpoint, _ = self.allocations
        if checkpoint is None:
            return
        running = self._running() if checkpoint.policy == "none" else None
        if (checkpoint, running) != self._reported:
            self._reported = (checkpoint, running)
            self._owner.put(
                events.KubeletStateRead(
                    checkpoint=checkpoint,
                    running=running,
                    names=self.pods.names(),
                    **self._owner.clocks.times(),
                )
            )


def _holds_cpus(ledger: NodeState, uid: str) -> bool:
    return any(entry.cpus for entry in ledger.of_pod(uid))
