"""What the agent reads of its kubelet: its pods, its configuration, and the CPUs that it gave containers.

Each is read by a source of its own. The last answer of each stays in effect while it cannot be read again.
"""

import asyncio
import math
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from corelane.agent.allocation import events
from corelane.agent.allocation.modes import ReportedPolicies
from corelane.agent.event_loop import Clocks, EventQueue, KubeletReported
from corelane.agent.kubelet.kubelet_allocations import (
    CONFIGURATION,
    POD_RESOURCES,
    STATE_FILE,
    KubeletState,
    KubeletStateFile,
    PodResources,
)
from corelane.agent.kubelet.kubelet_pods import KubeletPods
from corelane.agent.kubelet.pod_list import ANSWER_SECONDS, AbsentPods, PodList
from corelane.agent.reporting import AgentReporter
from corelane.agent.source import NodeWatch, Source, local_source, named_count
from corelane.kube.kubelet import KubeletClient, KubeletError
from corelane.kube.objects import KubeletConfiguration
from corelane.kube.pod import Pod
from corelane.node.kubelet.checkpoint import Checkpoint
from corelane.reasons import Code
from corelane.runtime.podresources import NoSocket, PodResourcesClient, PodResourcesError

CONFIGURATION_SECONDS: Final = 3.0
"""A changed kubelet configuration is published within 5 s, also of a kubelet that was down for long."""
FALLBACK_AFTER: Final = 3
"""Failures of the kubelet in a row after which pods are read from the API server."""
PROMPTS: Final = (0.2, 0.3, 0.5, 1.0, 2.0, 4.0)
"""Seconds between the end of a container with exclusive CPUs and lists of pods that may release them."""
_REFUSALS: Final[Mapping[Code, float]] = {Code.KUBELET_FORBIDDEN: 30.0, Code.KUBELET_ENDPOINT_OFF: 0.0}
"""Seconds for which the last answer of /configz counts while the kubelet refuses another one.

An endpoint that is not served any more proves that the kubelet was started again. 401 and 500 are no
refusals: a kubelet that cannot reach the API server answers so, too.
"""


@dataclass(frozen=True, slots=True)
class KubeletConnections:
    """Ways to reach the kubelet beside the agent.

    Without `resources_required` a podresources socket that does not exist is not a fault.
    """

    endpoints: KubeletClient[Pod]
    address: str = ""
    state_file: KubeletStateFile | None = None
    resources: PodResourcesClient | None = None
    resources_required: bool = False

    async def close(self) -> None:
        """Close the connections."""
        await self.endpoints.close()
        if self.resources is not None:
            await self.resources.close()


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
        """Return the kubelet's CPU allocations and their source; None and "" while nothing is known.

        `uids` are those of pods by name. Without both sources a kubelet whose policy is none by /configz
        counts as one with such a file.
        """
        file, resources = self.state.checkpoint if self.state else None, self.resources
        is_readable = file is not None and not self.state_fault
        if resources and resources.static and (not is_readable or file == resources.outdated):
            return resources.checkpoint(uids), POD_RESOURCES
        if file is not None:
            return file, STATE_FILE
        return (Checkpoint("none"), CONFIGURATION) if self.policy_is_none else (None, "")

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


class KubeletSources:
    """The sources of one kubelet, none where `connections` is None; pods are read every `seconds`.

    KubeletReported is put where an answer differs from the last one.
    """

    def __init__(
        self,
        connections: KubeletConnections | None,
        machine: KubeletPods,
        pods: PodList,
        absent: AbsentPods,
        node_watch: NodeWatch,
        queue: EventQueue,
        *,
        seconds: float,
        reporter: AgentReporter,
        clocks: Clocks,
    ) -> None:
        self.pods = pods
        self._connections = connections
        self._machine = machine
        self._absent = absent
        self._node_watch = node_watch
        self._queue = queue
        self._clocks = clocks
        has_file = connections is not None and connections.state_file is not None
        self._facts = KubeletFacts(state_fault="" if has_file else "no state file is configured")
        self._configuration_asked = asyncio.Event()
        """Set once the configuration was asked for: before, pods would be admitted by policy none."""
        self._refused_since: float | None = None
        self._version: tuple[int, ...] = ()
        self._awaited: set[str] = set()
        self._prompts: list[float] = []
        self._prompting: asyncio.TimerHandle | None = None
        self._reported: tuple[Checkpoint, frozenset[str] | None] | None = None
        source = partial(local_source, reporter=reporter, clocks=clocks)
        often = partial(source, seconds=CONFIGURATION_SECONDS)
        self.pods_source = source("kubelet pods", seconds=seconds)
        self.configuration = often("kubelet configuration")
        self.state_file = often("kubelet state file")
        self.resources = often("kubelet podresources")

    @property
    def all(self) -> list[Source]:
        """The sources that are read."""
        if self._connections is None:
            return []
        file = [self.state_file] if self._connections.state_file else []
        resources = [self.resources] if self._connections.resources else []
        return [self.pods_source, self.configuration, *file, *resources]

    def parts(self) -> Iterator[Coroutine[Any, Any, None]]:
        """Yield the sources' tasks."""
        if (connections := self._connections) is None:
            return
        yield self.pods_source.run(partial(self._read_pods, connections.endpoints))
        yield self.configuration.run(partial(self._read_configuration, connections.endpoints))
        if connections.state_file:
            yield self.state_file.run(partial(self._read_state, connections.state_file))
        if connections.resources:
            yield self.resources.run(partial(self._read_resources, connections.resources))

    @property
    def facts(self) -> KubeletFacts | None:
        """What the kubelet reported last; None without a kubelet."""
        return self._facts if self._connections else None

    def _note(self, facts: KubeletFacts) -> None:
        before, self._facts = self._facts, facts
        if facts != before:
            self._queue.put(KubeletReported(**self._clocks.times()))

    # -- pods

    async def _read_pods(self, kubelet: KubeletClient[Pod]) -> None:
        """Ask the kubelet for its pods; when it fails again and again, follow the API server instead."""
        await self._configuration_asked.wait()
        try:
            await self._list_pods(kubelet)
        except Exception:
            if self.pods_source.state.retries + 1 >= FALLBACK_AFTER:
                self._node_watch.follow_pods(True)
            raise
        self._node_watch.follow_pods(False)
        self.pods_source.note_ok(named_count(len(self.pods.pods), "pod"))
        self._report_allocations()

    async def _list_pods(self, kubelet: KubeletClient[Pod], seconds: float = ANSWER_SECONDS) -> None:
        """Ask for /pods, and the API server for `seconds` about pods that are absent. Raises KubeletError."""
        began = self._clocks.monotonic()
        listing = await kubelet.pods()
        absent = self.pods.absent(self._machine.allocated_pods(), listing.items, listing.malformed)
        remaining = await self._absent.remaining(absent, listing.items, seconds)
        self.pods.replace(listing.items, listing.malformed, remaining, began)

    async def find_pod(self, uid: str, seconds: float) -> bool:
        """Whether a pod is known, after asking the kubelet if need be."""
        if uid not in self.pods.pods and self._connections is not None:
            async with asyncio.timeout(seconds):
                await self._list_pods(self._connections.endpoints, seconds / 2)
        return uid in self.pods.pods

    def container_ended(self, uid: str) -> None:
        """Ask for the pods soon, and again, until a pod with exclusive CPUs is gone, has ended or runs."""
        if self._connections is not None and self._machine.has_cpus(uid):
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
        machine = self._machine
        self._awaited = {
            uid
            for uid in self._awaited
            if (pod := machine.pods.get(uid)) and not pod.live and machine.has_cpus(uid)
        }
        if self._awaited:
            self.pods_source.wake()
            self._prompt()

    # -- configuration

    async def _read_configuration(self, kubelet: KubeletClient[Pod]) -> None:
        """Ask for /configz. Raises KubeletError."""
        try:
            configuration = await kubelet.configuration()
        except KubeletError as error:
            self._note_failure(error)
            raise
        finally:
            self._configuration_asked.set()
        self._refused_since = None
        self._note(replace(self._facts, configuration=configuration, configuration_fault=""))
        self._report_allocations()

    def _note_failure(self, error: KubeletError) -> None:
        """Record why /configz cannot be read; after a lasting refusal its last answer is forgotten."""
        limit, now = _REFUSALS.get(error.reason.code, math.inf), self._clocks.monotonic()
        if math.isinf(limit):
            self._refused_since = None
        elif self._refused_since is None:
            self._refused_since = now
        since = now if self._refused_since is None else self._refused_since
        configuration = self._facts.configuration if now - since < limit else None
        self._note(replace(self._facts, configuration=configuration, configuration_fault=str(error)))

    async def refresh(self, seconds: float = 0.0) -> None:
        """Read the kubelet's state file if it was replaced, before CPUs are decided or repaired.

        Drift may be the first sign of a kubelet that was started with policy static. It writes its file
        before any cpuset, and each cpuset once. Without the file, /configz is asked for so many `seconds`.
        """
        if (connections := self._connections) is None:
            return
        file = connections.state_file
        with suppress(OSError, KubeletError):  # reported by the source of its own
            if file is not None and file.version() != self._version:
                await self._read_state(file)
            elif seconds and file is None:
                async with asyncio.timeout(seconds):
                    await self._read_configuration(connections.endpoints)

    # -- CPUs of containers

    async def _read_state(self, file: KubeletStateFile) -> None:
        """Read the state file. Raises OSError with the fault; that it is another kubelet's is one, too."""
        self._version = file.version()
        try:
            state = await asyncio.to_thread(file.read)
            if state.fault:
                self._note(replace(self._facts, state_fault=state.fault))
                raise OSError(state.fault)
            resources = self._facts.resources
            is_outdated = resources is not None and state.checkpoint == resources.outdated
            fault = resources.why_outdated if resources and is_outdated else ""
            self._note(replace(self._facts, state=state, state_fault=fault))
            if fault:
                raise OSError(fault)
        finally:
            self._report_allocations()

    async def _read_resources(self, socket: PodResourcesClient) -> None:
        await self._configuration_asked.wait()
        self.resources.note_ok(await self._ask_resources(socket))
        self._report_allocations()

    async def _ask_resources(self, socket: PodResourcesClient) -> str:
        """Ask the podresources socket, unless the policy is none; return the result in words.

        Raises PodResourcesError.
        """
        assert self._connections is not None
        if self._facts.policy_is_none:
            self._note(replace(self._facts, resources=None))
            return "not asked: the kubelet's CPU manager policy is none"
        file = self._connections.state_file
        try:
            before = await asyncio.to_thread(file.read) if file else None
            resources = PodResources(await socket.allocatable(), tuple(await socket.list()))
        except NoSocket:
            self._note(replace(self._facts, resources=None))
            if self._connections.resources_required:
                raise
            return "no socket"
        except PodResourcesError:
            last = self._facts.resources
            self._note(replace(self._facts, resources=last and replace(last, current=False)))
            raise
        if file is not None and before is not None and before == await asyncio.to_thread(file.read):
            resources = resources.compared(before.checkpoint, self.pods.uids())
        self._note(replace(self._facts, resources=resources))
        return resources.summary(self.pods.uids())

    @property
    def allocations(self) -> tuple[Checkpoint | None, str]:
        """The CPUs that the kubelet gave containers, and their source; None while nothing is known."""
        return self._facts.allocations(self.pods.uids()) if self._connections else (None, "")

    def _running(self) -> frozenset[str] | None:
        """Return the UIDs of pods that run, by the list of pods or of containers; None before both.

        A kubelet that has just started does not list all of its pods.
        """
        listed, live = self.pods.running(), self._machine.live_pods
        return None if listed is None or live is None else listed | live

    def _report_allocations(self) -> None:
        """Report the CPUs that the kubelet pinned, where they or its pods changed."""
        checkpoint, _ = self.allocations
        if checkpoint is None:
            return
        running = self._running() if checkpoint.policy == "none" else None
        if (checkpoint, running) != self._reported:
            self._reported = (checkpoint, running)
            names, times = self.pods.names(), self._clocks.times()
            self._queue.put(
                events.KubeletStateRead(checkpoint=checkpoint, running=running, names=names, **times)
            )
