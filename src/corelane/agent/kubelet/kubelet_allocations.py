"""The CPUs that a static kubelet gave containers, from its state file or from its podresources socket.

The file counts while it can be read: it names pods by UID, has init containers and the policy, and outlives
the kubelet. The socket has none of these, but answers from the running kubelet's memory. So it counts where
the file is not mounted, cannot be read, or is not the file of the kubelet that answers. If the file is
missing or unreadable, its last content stays in effect, and the fault is reported once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from corelane import input_files
from corelane.agent.allocation.modes import Mode
from corelane.cpuset import CPUSet
from corelane.kube import translate
from corelane.kube.objects import KubeletConfiguration
from corelane.kube.translate.koordlet import KubeletReport, PodCPUs
from corelane.kube.translate.node_labels import KubeletSettings
from corelane.node.kubelet import checkpoint
from corelane.node.kubelet.checkpoint import Checkpoint
from corelane.node.kubelet.statefile import CheckpointError
from corelane.node.ledger import NodeState
from corelane.node.recovery.takeover import pinned

if TYPE_CHECKING:  # it loads protobuf, which `corelane up` does not need
    from corelane.runtime.podresources import PodAllocation

STATE_FILE: Final = "cpu_manager_state"
POD_RESOURCES: Final = "podresources"
CONFIGURATION: Final = "/configz"
_MOST_DIFFERENCES: Final = 3


@dataclass(frozen=True, slots=True)
class PodResources:
    """An answer of the podresources socket; `current` unless the socket fails since.

    `outdated` is the content of the state file, if it contradicts this answer, and `why_outdated` how.
    """

    allocatable: CPUSet = field(default_factory=CPUSet)
    pods: tuple[PodAllocation, ...] = ()
    outdated: Checkpoint | None = None
    why_outdated: str = ""
    current: bool = True

    @property
    def static(self) -> bool:
        """Whether the kubelet's policy is certainly static: under none no CPU is allocatable."""
        return bool(self.allocatable)

    def compared(self, file: Checkpoint | None, uids: Mapping[str, str]) -> PodResources:
        """Compare with a state file that was the same before and after this answer."""
        differences = list(_differences(file, self.pods, uids)) if file else []
        if not differences:
            return self
        more = len(differences) - _MOST_DIFFERENCES
        text = "; ".join(differences[:_MOST_DIFFERENCES]) + (f"; {more} more" if more > 0 else "")
        why = (
            f"{STATE_FILE} is not that of the running kubelet: {text}; set kubelet.stateFile to the file in "
            "the kubelet's root directory, and mount that directory"
        )
        return replace(self, outdated=file, why_outdated=why)

    def checkpoint(self, uids: Mapping[str, str]) -> Checkpoint:
        """Return the answer as a state file has it; `uids` are those of pods by `namespace/name`.

        Pods without a UID are left out until they are listed.
        """
        listed = [(uids[pod.key], pod) for pod in self.pods if pod.key in uids]
        return Checkpoint(
            "static",
            entries={uid: pod.containers for uid, pod in listed if pod.containers},
            pods={uid: pod.cpus for uid, pod in listed if pod.cpus},
        )

    def summary(self, uids: Mapping[str, str]) -> str:
        """Return the answer in words, for status."""
        pinned = [pod for pod in self.pods if pod.containers or pod.cpus]
        cpus = CPUSet(cpu for pod in pinned for held in (*pod.containers.values(), pod.cpus) for cpu in held)
        text = f"{len(cpus)} of {len(self.allocatable)} allocatable CPUs exclusive, {len(pinned)} pods"
        unlisted = sum(pod.key not in uids for pod in pinned)
        return f"{text}, {unlisted} of them not listed yet" if unlisted else text


def _differences(file: Checkpoint, pods: tuple[PodAllocation, ...], uids: Mapping[str, str]) -> Iterator[str]:
    """Yield the containers that the running kubelet has on other CPUs than the file.

    Those that the file alone has are none: it has init containers too, and ended pods for a while.
    """
    for pod in pods:
        recorded = file.entries.get(uids.get(pod.key, ""), {})
        for container, cpus in pod.containers.items() if pod.key in uids else ():
            own = recorded.get(container)
            if own != cpus:
                yield f"{pod.key} {container}: CPUs {own or 'none'} in the file, {cpus} by the kubelet"


_LARGEST: Final = 4 << 20
"""Bytes; a state file has some hundred for each container."""
_UNCHANGED: Final = "CPUs pinned by the kubelet stay allocated as last read"


@dataclass(frozen=True, slots=True)
class KubeletState:
    """Content of the file, or the fault that prevented reading it.

    `running` are the UIDs of the kubelet's pods, None where the file's policy makes that irrelevant, or no
    source for it was given.
    """

    checkpoint: Checkpoint | None = None
    running: frozenset[str] | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    """UID to `namespace/name`, of the kubelet's pods."""
    fault: str = ""


class PodsOfKubelet(Protocol):
    """The pods of a kubelet on this machine. Both methods may raise OSError."""

    def running(self) -> Collection[str] | None:
        """Return UIDs of running pods; None if they are not in view."""

    def names(self) -> Mapping[str, str]:
        """Return `namespace/name` by UID."""


class KubeletStateFile:
    """The state file of a kubelet beside the agent, and that kubelet's `pods` if it is not asked for them."""

    def __init__(self, path: Path, pods: PodsOfKubelet | None = None) -> None:
        self.path = path
        self._pods = pods

    def version(self) -> tuple[int, ...]:
        """Return what tells one content from the next, cheaply; () while the file cannot be seen."""
        try:
            status = self.path.stat()
        except OSError:
            return ()
        return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size

    def read(self) -> KubeletState:
        """Read the file; where its policy is none, ask for the running pods, too. Blocks."""
        try:
            state = checkpoint.decode(input_files.read(self.path, _LARGEST, regular=True))
            if state.policy not in ("static", "none"):
                raise ValueError(f"policyName: {state.policy!r} is neither static nor none")
            if state.version == 1:
                raise ValueError("version 1 names containers by id; start the kubelet to rewrite the file")
            running = self._pods.running() if self._pods and state.policy == "none" else None
            names = self._pods.names() if self._pods and state.entries else {}
        except OSError as error:
            return KubeletState(fault=f"{self.path}: {error.strerror or error}: {_UNCHANGED}")
        except (CheckpointError, ValueError) as error:
            return KubeletState(fault=f"{self.path}: {error}: {_UNCHANGED}")
        return KubeletState(state, None if running is None else frozenset(running), names)


def kubelet_report(
    mode: Mode,
    ledger: NodeState,
    configuration: KubeletConfiguration | None,
    checkpoint: Checkpoint | None,
    names: Mapping[str, str],
    *,
    allocatable: CPUSet | None = None,
) -> KubeletReport:
    """Return the report for the node's topology; nothing where the mode reports nothing or nothing is known.

    `configuration` is the last answer of /configz, `checkpoint` holds the kubelet's CPU allocations, and
    `names` are `namespace/name` of pods by UID. `allocatable` CPUs, as podresources has them, are all but the
    kubelet's reserved ones.
    """
    if not mode.reports_kubelet_cpus:
        return KubeletReport()
    if configuration is not None:
        settings = translate.kubelet_settings(configuration, ledger.machine)
    elif checkpoint is not None:
        settings = KubeletSettings("static" if checkpoint.policy == "static" else "none")
    else:
        return KubeletReport()
    if allocatable and settings.policy == "static":
        settings = replace(settings, reserved=ledger.machine.online - allocatable)
    cpusets = kubelet_cpusets(mode, ledger, checkpoint)
    return KubeletReport(settings, tuple(_pod(uid, cpusets[uid], names) for uid in sorted(cpusets)))


def kubelet_cpusets(
    mode: Mode, ledger: NodeState, checkpoint: Checkpoint | None
) -> dict[str, dict[str, CPUSet]]:
    """Return UID to container to the CPUs that the kubelet gave it, by its state file.

    After a takeover the file is empty: the ledger then has what the kubelet's pods keep until they end.
    """
    if not mode.reports_kubelet_cpus:
        return {}
    if checkpoint is not None and checkpoint.policy == "static":
        return {uid: dict(containers) for uid, containers in checkpoint.entries.items() if containers}
    cpusets: dict[str, dict[str, CPUSet]] = {}
    for entry in pinned(ledger):
        if entry.cpus:
            cpusets.setdefault(entry.uid, {})[entry.container] = entry.cpus
    return cpusets


def _pod(uid: str, containers: Mapping[str, CPUSet], names: Mapping[str, str]) -> PodCPUs:
    namespace, _, name = names.get(uid, "").partition("/")
    return PodCPUs(namespace, name, uid, CPUSet(cpu for cpus in containers.values() for cpu in cpus))
