"""What the agent may do on its node, decided from the kubelet's policies, flags, and the node's own policy.

A kubelet with the static CPU manager writes the cpusets of all its containers every few seconds: two writers
would undo each other, and two allocators would give one CPU twice. So exactly one of them allocates; where it
is not certain which, corelane does not. The stages of a takeover are those of Koordinator's proposal.

A kubelet ends at its start if `cpu_manager_state` names another policy than its configuration, after it has
answered /configz for a moment. So corelane owns the cpusets only while neither of the two says otherwise, and
a kubelet that starts again and again does not change the mode each time.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from corelane.cpuset import CPUSet
from corelane.node.config import Policy
from corelane.node.entries import Entry, Origin
from corelane.node.ledger import NodeState
from corelane.reasons import Code, Reason

_CONFIGZ: Final = "/configz"
_STATE_FILE: Final = "cpu_manager_state"
_POD_RESOURCES: Final = "podresources"


class ModeName(StrEnum):
    """The mode in a word, for status."""

    OWNER = "owner"
    """corelane owns the cpusets."""
    TAKEOVER = "takeover"
    """corelane owns the cpusets, but for CPUs of pods that the kubelet pinned before."""
    KUBELET = "kubelet"
    """The kubelet's static policy owns them."""
    OBSERVER = "observer"
    """Node policy none: nothing is allocated or written."""
    READ_ONLY = "read-only"
    """By flag, or because the kubelet's policy is unknown."""
    IGNORED = "ignored"
    """By flag: the kubelet's CPUs are neither reported nor left out of the node's free CPUs."""


class CPUWrites(StrEnum):
    """The containers whose cpuset may be written."""

    EVERY = "every container"
    UNMANAGED = "containers that the kubelet does not manage"
    NOTHING = "no container"


@dataclass(frozen=True, slots=True)
class Remaining:
    """Pods whose CPUs an earlier owner allocated exclusively, and these CPUs."""

    pods: int = 0
    cpus: CPUSet = field(default_factory=CPUSet)


def remaining(ledger: NodeState) -> tuple[Remaining, Remaining]:
    """Return the kubelet's pods with exclusive CPUs in the ledger, and those of corelane."""
    entries = ledger.entries.values()
    pinned = [entry for entry in entries if entry.cpus and entry.origin is Origin.KUBELET]
    exclusive = [entry for entry in entries if entry.exclusive and entry.origin is not Origin.KUBELET]
    return _of_entries(pinned), _of_entries(exclusive)


def _of_entries(entries: list[Entry]) -> Remaining:
    cpus = CPUSet(cpu for entry in entries for cpu in entry.cpus)
    return Remaining(len({entry.uid for entry in entries}), cpus)


@dataclass(frozen=True, slots=True)
class ReportedPolicies:
    """What is known of a kubelet beside the agent; "" is unknown.

    `answer` and `memory` are the CPU and memory manager policies in the last answer of /configz, `file` the
    policy in `cpu_manager_state`, and `listed` that which the podresources socket shows, static or unknown.
    The faults say why /configz or the file cannot be read now.
    """

    answer: str = ""
    answer_fault: str = ""
    memory: str = ""
    file: str = ""
    file_fault: str = ""
    listed: str = ""


@dataclass(frozen=True, slots=True)
class ModeInputs:
    """Everything that the mode depends on. `kubelet` is None where there is none beside the agent.

    `pinned` are the kubelet's pods in the ledger, `exclusive` those of corelane.
    """

    kubelet: ReportedPolicies | None = None
    node_policy: Policy = "pools"
    read_only: bool = False
    ignore: bool = False
    pinned: Remaining = field(default_factory=Remaining)
    exclusive: Remaining = field(default_factory=Remaining)


@dataclass(frozen=True, slots=True)
class Mode:
    """What is allowed, and why.

    `allocates`: new pods may get exclusive CPUs. `holds_kubelet_cpus`: CPUs that the kubelet pinned are free
    for no other pod and in no pool. `reports_kubelet_cpus`: they are published.
    """

    name: ModeName
    allocates: bool
    writes_cpus: CPUWrites
    writes_mems: bool
    holds_kubelet_cpus: bool
    reports_kubelet_cpus: bool
    reasons: tuple[Reason, ...] = ()

    def may_write_cpus(self, *, kubelet_manages: bool) -> bool:
        """Return whether the cpuset of such a container may be written."""
        unmanaged = self.writes_cpus is CPUWrites.UNMANAGED and not kubelet_manages
        return unmanaged or self.writes_cpus is CPUWrites.EVERY

    def policy(self, configured: Policy) -> Policy:
        """Return the policy by which pods are admitted: none where corelane may not allocate."""
        return configured if self.allocates else "none"


def decide(inputs: ModeInputs) -> Mode:
    """Return the mode; flags precede the node's policy, which precedes the kubelet's."""
    name, reasons = _name(inputs)
    owner = name in (ModeName.OWNER, ModeName.TAKEOVER)
    mems, memory_reasons = _writes_mems(inputs.kubelet) if owner else (False, ())
    return Mode(
        name=name,
        allocates=owner,
        writes_cpus=_WRITES.get(name, CPUWrites.NOTHING),
        writes_mems=mems,
        holds_kubelet_cpus=name is not ModeName.IGNORED,
        reports_kubelet_cpus=name is not ModeName.IGNORED and inputs.kubelet is not None,
        reasons=(*reasons, *memory_reasons),
    )


_WRITES: Final = {
    ModeName.OWNER: CPUWrites.EVERY,
    ModeName.TAKEOVER: CPUWrites.EVERY,
    ModeName.KUBELET: CPUWrites.UNMANAGED,
}


def _name(inputs: ModeInputs) -> tuple[ModeName, tuple[Reason, ...]]:
    if inputs.ignore:
        return ModeName.IGNORED, (Reason(Code.MODE_IGNORE),)
    if inputs.read_only:
        return ModeName.READ_ONLY, (Reason(Code.MODE_READ_ONLY),)
    if inputs.node_policy == "none":
        return ModeName.OBSERVER, (Reason(Code.MODE_NODE_POLICY_NONE),)
    if inputs.kubelet is None:
        return _owner(Reason(Code.MODE_NO_KUBELET), inputs)
    return _beside(inputs.kubelet, inputs)


def _beside(kubelet: ReportedPolicies, inputs: ModeInputs) -> tuple[ModeName, tuple[Reason, ...]]:
    answer, file = kubelet.answer, kubelet.file
    source = _CONFIGZ if answer else _STATE_FILE
    stale = tuple(_stale(kubelet))
    left = tuple(_remaining_reasons(Code.MODE_EXCLUSIVE_PODS_LEFT, inputs.exclusive))
    if kubelet.listed == "static" and (kubelet.answer_fault or not answer):
        return ModeName.KUBELET, (Reason(Code.MODE_KUBELET_STATIC, (_POD_RESOURCES,)), *stale, *left)
    if not answer and not file:
        faults = (kubelet.answer_fault, kubelet.file_fault)
        return ModeName.READ_ONLY, (Reason(Code.MODE_POLICY_UNKNOWN, faults),)
    for policy, origin in ((answer, _CONFIGZ), (file, _STATE_FILE)):
        if policy not in ("", "none", "static"):
            return ModeName.READ_ONLY, (Reason(Code.MODE_POLICY_UNRECOGNIZED, (policy, origin)), *stale)
    if answer and file and answer != file:
        return ModeName.KUBELET, (Reason(Code.MODE_POLICIES_DIFFER, (answer, file)), *stale, *left)
    if (answer or file) == "static":
        return ModeName.KUBELET, (Reason(Code.MODE_KUBELET_STATIC, (source,)), *stale, *left)
    name, reasons = _owner(Reason(Code.MODE_KUBELET_NONE, (source,)), inputs)
    return name, reasons + stale


def _stale(kubelet: ReportedPolicies) -> Iterator[Reason]:
    if kubelet.answer and kubelet.answer_fault:
        yield Reason(Code.MODE_LAST_ANSWER, (kubelet.answer_fault,))


def _owner(reason: Reason, inputs: ModeInputs) -> tuple[ModeName, tuple[Reason, ...]]:
    held = tuple(_remaining_reasons(Code.MODE_KUBELET_CPUS_HELD, inputs.pinned))
    return ModeName.TAKEOVER if held else ModeName.OWNER, (reason, *held)


def _remaining_reasons(code: Code, pods: Remaining) -> Iterator[Reason]:
    if pods.pods:
        yield Reason(code, (pods.pods, pods.cpus.mask))


def _writes_mems(kubelet: ReportedPolicies | None) -> tuple[bool, tuple[Reason, ...]]:
    """Return whether cpuset.mems may be written: not beside a memory manager, or where there may be one."""
    if kubelet is None or kubelet.memory == "None":
        return True, ()
    code = Code.MODE_MEMORY_STATIC if kubelet.memory == "Static" else Code.MODE_MEMORY_UNKNOWN
    return False, (Reason(code),)
