"""What the kubelet beside the agent says: its pods, its configuration, and the CPUs that it gave containers.

Each is read by a source of its own. The last answer of each stays in effect while it cannot be read again.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from corelane.agent.allocation.modes import ReportedPolicies
from corelane.agent.kubelet_allocations import PodResources, effective
from corelane.agent.kubelet_state import KubeletState, KubeletStateFile
from corelane.cpuset import CPUSet
from corelane.kube import translate
from corelane.kube.decode import Listing, Malformed
from corelane.kube.kubelet.configuration import KubeletConfiguration
from corelane.kube.kubelet.errors import KubeletError
from corelane.kube.pod import Pod
from corelane.node.kubelet.checkpoint import Checkpoint
from corelane.runtime.podresources import NoSocket, PodAllocation, PodResourcesError


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
        pods: "PodList",
        *,
        state_file: KubeletStateFile | None = None,
        resources: PodResourcesSocket | None = None,
        resources_required: bool = False,
    ) -> None:
        self.facts = KubeletFacts(state_fault="" if state_file else "no state file is configured")
        self.asked = asyncio.Event()
        """Set once the configuration was asked for: before, pods would be admitted by policy none."""
        self._kubelet = kubelet
        self._state_file = state_file
        self._resources = resources
        self._resources_required = resources_required
        self._changed = changed
        self._pods = pods

    @property
    def has_state_file(self) -> bool:
        return self._state_file is not None

    @property
    def has_resources(self) -> bool:
        return self._resources is not None

    async def read_configuration(self) -> None:
        """Ask for /configz. Raises KubeletError."""
        try:
            configuration = await self._kubelet.configuration()
        except KubeletError as error:
            self._update(configuration_fault=str(error))
            raise
        finally:
            self.asked.set()
        self._update(configuration=configuration, configuration_fault="")

    async def read_state(self) -> None:
        """Read the state file. Raises OSError with the fault; that it is another kubelet's is one, too."""
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

    async def read_pods(self) -> None:
        """Ask for /pods. Raises KubeletError."""
        listing = await self._kubelet.pods()
        self._pods.replace(listing.items, listing.malformed)

    def _update(self, **changes: object) -> None:
        before, self.facts = self.facts, replace(self.facts, **changes)  # type: ignore[arg-type]
        if self.facts != before:
            self._changed()


class PodListener(Protocol):
    """Receiver of changes of the pods on the node."""

    def pod_seen(self, uid: str, pod: Pod) -> None:
        """A pod was added or changed; `uid` is the one under which it runs."""

    def pod_malformed(self, uid: str, bad: Malformed) -> None:
        """A pod exists, but cannot be decoded."""

    def pod_gone(self, uid: str) -> None:
        """A pod is not listed any more."""

    def pods_listed(self) -> None:
        """Every pod of the node was reported since the start of a list."""


class PodList:
    """Pods of the node by the UID under which they run, from the kubelet, or else from the API server."""

    def __init__(self, listener: PodListener) -> None:
        self.pods: dict[str, Pod] = {}
        self._malformed: dict[str, Malformed] = {}
        self._listener = listener
        self.listed = False

    def replace(self, pods: Iterable[Pod], malformed: Iterable[Malformed] = ()) -> None:
        """Take a whole list."""
        current = {translate.running_uid(pod): pod for pod in pods}
        bad = {item.uid: item for item in malformed if item.uid}
        for uid in (self.pods.keys() | self._malformed.keys()) - current.keys() - bad.keys():
            self.drop(uid)
        for item in bad.values():
            self.put_malformed(item)
        for pod in current.values():
            self.put(pod)
        self.listed = True
        self._listener.pods_listed()

    def running(self) -> frozenset[str] | None:
        """Return the UIDs of pods that have not ended; None before the first list."""
        if not self.listed:
            return None
        return frozenset(uid for uid, pod in self.pods.items() if not pod.ended) | self._malformed.keys()

    def names(self) -> dict[str, str]:
        """Return `namespace/name` by UID."""
        return {uid: f"{pod.metadata.namespace}/{pod.metadata.name}" for uid, pod in self.pods.items()}

    def uids(self) -> dict[str, str]:
        """Return UIDs by `namespace/name`; of pods with one name that of the pod which has not ended."""
        ended_first = sorted(self.pods.items(), key=lambda item: not item[1].ended)
        return {f"{pod.metadata.namespace}/{pod.metadata.name}": uid for uid, pod in ended_first}

    def complete(self, pods: Iterable[Pod]) -> None:
        """Take a list whose malformed pods were put before."""
        self.replace(pods, tuple(self._malformed.values()))

    def put_malformed(self, bad: Malformed) -> None:
        """Take a pod that exists but cannot be decoded; its last valid state is dropped."""
        if self._malformed.get(bad.uid) != bad:
            self._malformed[bad.uid] = bad
            self._listener.pod_malformed(bad.uid, bad)

    def put(self, pod: Pod) -> None:
        """Take one pod; nothing happens if it is the object that was taken before."""
        uid = translate.running_uid(pod)
        if self.pods.get(uid) is not pod:
            self._malformed.pop(uid, None)
            self.pods[uid] = pod
            self._listener.pod_seen(uid, pod)

    def drop(self, uid: str) -> None:
        """Forget a pod that is gone."""
        self.pods.pop(uid, None)
        self._malformed.pop(uid, None)
        self._listener.pod_gone(uid)
