"""What the agent reads of its kubelet, each source by itself: pods, configuration, and CPUs of containers."""

import asyncio
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Protocol

from corelane.agent.allocation import events
from corelane.agent.allocation.events import AgentEvent
from corelane.agent.allocation.modes import ReportedPolicies
from corelane.agent.allocation.records import RunCPUs
from corelane.agent.event_loop import Clocks
from corelane.agent.kubelet.kubelet_allocations import KubeletState, KubeletStateFile, PodResources, effective
from corelane.agent.kubelet.kubelet_pods import KubeletPods
from corelane.agent.kubelet.pod_list import ANSWER_SECONDS, AbsentPods, PodList
from corelane.agent.reporting import AgentReporter
from corelane.agent.source import NodeWatch, Source, local_source, named_count
from corelane.cpuset import CPUSet
from corelane.kube.decode import Listing
from corelane.kube.kubelet import KubeletError
from corelane.kube.objects import KubeletConfiguration
from corelane.kube.pod import Pod
from corelane.node.kubelet.checkpoint import Checkpoint
from corelane.node.ledger import NodeState
from corelane.reasons import Code
from corelane.runtime.podresources import NoSocket, PodAllocation, PodResourcesError

# What the kubelet beside the agent says: its pods, its configuration, and the CPUs that it gave containers.
#
# Each is read by a source of its own. The last answer of each stays in effect while it cannot be read again.


_REFUSALS: Final[Mapping[Code, float]] = {Code.KUBELET_FORBIDDEN: 30.0, Code.KUBELET_ENDPOINT_OFF: 0.0}
"""Seconds for which the last answer of /configz counts while the kubelet refuses another one.

An endpoint that is not served any more proves that the kubelet was started again. 401 and 500 are no
refusals: a kubelet that cannot reach the API server answers so, too.
"""


class Kubelet(Protocol):
    """The kubelet's HTTPS endpoints; every request raises KubeletError."""

    async def pods(self) -> Listing[Pod]: ...

    async def configuration(self) -> KubeletConfiguration: ...

    async def close(self) -> None: ...


class PodResourcesSocket(Protocol):
    """The kubelet's podresources socket; every call raises PodResourcesError."""

    async def list(self) -> list[PodAllocation]: ...

    async def allocatable(self) -> CPUSet: ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class KubeletFacts:
    """The last answers; None before the first one. Faults are why a source cannot be read now."""

    configuration: KubeletConfiguration | None = None
    configuration_fault: str = ""
    state: KubeletState | None = None
    state_fault: str = ""
    resources: PodResources | None = None

    @property
    def policy_is_none(self) -> bool:
        """Whether the kubelet answers that its CPU manager policy is none."""
        answer = self.configuration
        return answer is not None and not self.configuration_fault and answer.cpu_manager_policy == "none"

    def allocations(self, uids: Mapping[str, str]) -> tuple[Checkpoint | None, str]:
        """Return the kubelet's CPU allocations and their source; `uids` are those of pods by name."""
        return effective(
            self.state.checkpoint if self.state else None,
            readable=not self.state_fault,
            resources=self.resources,
            policy_is_none=self.policy_is_none,
            uids=uids,
        )

    @property
    def policies(self) -> ReportedPolicies:
        """What the agent's mode depends on."""
        answer, file = self.configuration, self.state and self.state.checkpoint
        return ReportedPolicies(
            answer=answer.cpu_manager_policy if answer else "",
            answer_fault=self.configuration_fault,
            memory=answer.memory_manager_policy if answer else "",
            file=file.policy if file else "",
            file_fault=self.state_fault,
            listed="static" if self.resources and self.resources.current and self.resources.static else "",
        )


class KubeletSide:
    """Reads what the kubelet says; `changed` is called when an answer differs from the last one.

    Without `resources_required` a podresources socket that does not exist is not a fault.
    """

    def __init__(
        self,
        kubelet: Kubelet,
        changed: Callable[[], None],
        pods: PodList,
        absent: AbsentPods,
        clock: Callable[[], float],
        *,
        state_file: KubeletStateFile | None = None,
        resources: PodResourcesSocket | None = None,
        resources_required: bool = False,
    ) -> None:
        """`clock` is monotonic."""
        self.facts = KubeletFacts(state_fault="" if state_file else "no state file is configured")
        self.asked = asyncio.Event()
        """Set once the configuration was asked for: before, pods would be admitted by policy none."""
        self._kubelet = kubelet
        self._state_file = state_file
        self._resources = resources
        self._resources_required = resources_required
        self._changed = changed
        self._pods = pods
        self._absent = absent
        self._clock = clock
        self._refused_since: float | None = None
        self._version: tuple[int, ...] = ()

    @property
    def has_state_file(self) -> bool:
        """Whether a state file is read."""
        return self._state_file is not None

    @property
    def has_resources(self) -> bool:
        """Whether the podresources socket is asked."""
        return self._resources is not None

    async def read_configuration(self) -> None:
        """Ask for /configz. Raises KubeletError."""
        try:
            configuration = await self._kubelet.configuration()
        except KubeletError as error:
            self._note_failure(error)
            raise
        finally:
            self.asked.set()
        self._refused_since = None
        self._update(configuration=configuration, configuration_fault="")

    def _note_failure(self, error: KubeletError) -> None:
        """Record why /configz cannot be read; after a lasting refusal its last answer is forgotten."""
        limit, now = _REFUSALS.get(error.reason.code, math.inf), self._clock()
        if math.isinf(limit):
            self._refused_since = None
        elif self._refused_since is None:
            self._refused_since = now
        since = now if self._refused_since is None else self._refused_since
        configuration = self.facts.configuration if now - since < limit else None
        self._update(configuration=configuration, configuration_fault=str(error))

    async def read_state(self) -> None:
        """Read the state file. Raises OSError with the fault; that it is another kubelet's is one, too."""
        self._version = self._state_file.version() if self._state_file else ()
        state = await self._read_file()
        if state is None:
            return
        resources = self.facts.resources
        outdated = resources is not None and state.checkpoint == resources.outdated
        fault = state.fault or (resources.why_outdated if resources and outdated else "")
        if not state.fault:
            self._update(state=state, state_fault=fault)
        else:
            self._update(state_fault=fault)
        if fault:
            raise OSError(fault)

    @property
    def state_file_replaced(self) -> bool:
        """Whether the state file is not the one that was read last."""
        return self._state_file is not None and self._state_file.version() != self._version

    async def _read_file(self) -> KubeletState | None:
        return await asyncio.to_thread(self._state_file.read) if self._state_file else None

    async def read_resources(self) -> str:
        """Ask the podresources socket, unless the policy is none; return the result in words.

        Raises PodResourcesError.
        """
        assert self._resources is not None
        if self.facts.policy_is_none:
            self._update(resources=None)
            return "not asked: the kubelet's CPU manager policy is none"
        try:
            before = await self._read_file()
            resources = PodResources(await self._resources.allocatable(), tuple(await self._resources.list()))
        except NoSocket:
            self._update(resources=None)
            if self._resources_required:
                raise
            return "no socket"
        except PodResourcesError:
            self._update(resources=self.facts.resources and replace(self.facts.resources, current=False))
            raise
        if before is not None and before == await self._read_file():
            resources = resources.compared(before.checkpoint, self._pods.uids())
        self._update(resources=resources)
        return resources.summary(self._pods.uids())

    async def read_pods(self, allocated: Mapping[str, str], seconds: float = ANSWER_SECONDS) -> None:
        """Ask for /pods, and the API server for `seconds` about pods that are absent. Raises KubeletError.

        `allocated` are `namespace/name` by UID of the pods that have CPUs or a request on the node.
        """
        began = self._clock()
        listing = await self._kubelet.pods()
        absent = self._pods.absent(allocated, listing.items, listing.malformed)
        remaining = await self._absent.remaining(absent, listing.items, seconds)
        self._pods.replace(listing.items, listing.malformed, remaining, began)

    def _update(self, **changes: object) -> None:
        before, self.facts = self.facts, replace(self.facts, **changes)  # type: ignore[arg-type]
        if self.facts != before:
            self._changed()


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
