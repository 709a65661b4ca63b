"""What the kubelet beside the agent says: its pods, its configuration, and the CPUs that it gave containers.

Each is read by a source of its own. The last answer of each stays in effect while it cannot be read again.
"""

import asyncio
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Protocol

from corelane.agent.absent_pods import ANSWER_SECONDS, AbsentPods
from corelane.agent.allocation.modes import ReportedPolicies
from corelane.agent.kubelet_allocations import PodResources, effective
from corelane.agent.kubelet_state import KubeletState, KubeletStateFile
from corelane.agent.pod_list import PodList
from corelane.cpuset import CPUSet
from corelane.kube.decode import Listing
from corelane.kube.kubelet.configuration import KubeletConfiguration
from corelane.kube.kubelet.errors import KubeletError
from corelane.kube.pod import Pod
from corelane.node.kubelet.checkpoint import Checkpoint
from corelane.reasons import Code
from corelane.runtime.podresources import NoSocket, PodAllocation, PodResourcesError

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
