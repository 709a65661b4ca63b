"""The CPUs that a static kubelet gave containers, from its state file or from its podresources socket.

The file counts while it can be read: it names pods by UID, has init containers and the policy, and outlives
the kubelet. The socket has none of these, but answers from the running kubelet's memory. So it counts where
the file is not mounted, cannot be read, or is not the file of the kubelet that answers.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from corelane.cpuset import CPUSet
from corelane.node.kubelet.checkpoint import Checkpoint
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

    def compared(self, file: Checkpoint | None, uids: Mapping[str, str]) -> "PodResources":
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
        known = [(uids[pod.key], pod) for pod in self.pods if pod.key in uids]
        return Checkpoint(
            "static",
            entries={uid: pod.containers for uid, pod in known if pod.containers},
            pods={uid: pod.cpus for uid, pod in known if pod.cpus},
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


def effective(
    file: Checkpoint | None,
    *,
    readable: bool,
    resources: PodResources | None,
    policy_is_none: bool,
    uids: Mapping[str, str],
) -> tuple[Checkpoint | None, str]:
    """Return the kubelet's allocations and their source; None and "" while nothing is known.

    `file` is the last content of the state file, `readable` if that is so now. Without both sources a
    kubelet whose policy is none by /configz counts as one with such a file.
    """
    if resources is not None and resources.static:
        outdated = file == resources.outdated
        if file is None or not readable or outdated:
            return resources.checkpoint(uids), POD_RESOURCES
    if file is not None:
        return file, STATE_FILE
    return (Checkpoint("none"), CONFIGURATION) if policy_is_none else (None, "")
