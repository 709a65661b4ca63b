"""The sentences about the kubelet's state files: why a repair changes an entry, and remedies at its start."""

from collections.abc import Callable, Mapping
from typing import Final

from corelane.cpuset import format_list, named, verb
from corelane.reasons.codes import Code

_REPAIR: Final = "run `corelane state repair` (running pods keep their CPUs)"
_REMOVE: Final = "drain the node, then remove the file: the kubelet creates a new one"


def _lost(reserved: int, offline: int, others: int) -> str:
    parts = [f"{named(reserved)} {verb(reserved)} now reserved"] if reserved else []
    parts += [f"{named(offline)} {verb(offline)} not online"] if offline else []
    parts += [f"{named(others)} {verb(others, 'belongs', 'belong')} to another"] if others else []
    return ", ".join(parts)


def _dropped(reserved: int, offline: int, others: int, running: bool) -> str:
    lost = _lost(reserved, offline, others)
    before, after = ("", "left out, ") if running else ("not running, and ", "")
    return f"{before}{lost}: {after}the kubelet allocates again"


def _total(missing: int, gone: int) -> str:
    parts = [f"{named(missing)} {verb(missing)} missing in the file"] if missing else []
    parts += [f"{named(gone)} {verb(gone)} in the file, but not in the machine"] if gone else []
    return f"{', '.join(parts)}; {_REPAIR}"


_PHRASES: Final[Mapping[Code, str | Callable[..., str]]] = {
    Code.ENTRY_UNCHANGED: "running on these CPUs",
    Code.ENTRY_RUNNING: "running on {0}",
    Code.ENTRY_NOT_RUNNING: "not running, but its pod is still on the node",
    Code.ENTRY_LOST_CPUS: _lost,
    Code.ENTRY_REPLACED_CPUS: lambda cpus: f"replaced by {format_list(cpus)}",
    Code.ENTRY_WITHOUT_NAME: "name unknown: its CPUs stay allocated",
    Code.ENTRY_DROPPED: _dropped,
    Code.ENTRY_NOT_EXCLUSIVE: "ended, or runs in the shared pool",
    Code.ENTRY_POLICY_NONE: "policy none allocates no exclusive CPUs",
    Code.REMEDY_REPAIR: _REPAIR,
    Code.REMEDY_REPAIR_TOTAL: _total,
    Code.REMEDY_RESERVE_OTHERS: f"{_REPAIR}, or reserve CPUs of {{0}}",
    Code.REMEDY_REMOVE_STRICT: f"{_REPAIR}, or remove strict-cpu-reservation",
    Code.REMEDY_FREE_CPUS: (
        "start the kubelet without strict-cpu-reservation, reserve fewer CPUs, or end one of the pods; "
        "then run `corelane state repair`"
    ),
    Code.REMEDY_CONVERT: "run `corelane state convert --to v2`, which drops pod-level CPUs",
    Code.REMEDY_CONVERT_WITHOUT_GATE: "without the gate: run `corelane state convert --to v2`",
    Code.REMEDY_DRAIN_POD_LEVEL: "drain the pods with pod-level resources first",
    Code.REMEDY_REMOVE: _REMOVE,
    Code.REMEDY_REMOVE_WITHOUT_GATE: f"without the gate: {_REMOVE}",
    Code.REMEDY_MEMORY_POLICY: f"set memoryManagerPolicy: {{0}} again, or {_REMOVE}",
    Code.REMEDY_RESERVED_MEMORY: f"set reservedMemory to its earlier value if it changed, or {_REMOVE}",
    Code.REMEDY_REMOVE_UNUSED: (
        "no container has memory in the file: remove it, and the kubelet creates a new one; "
        "nothing needs to be drained"
    ),
    Code.REMEDY_RESERVE_MEMORY: (
        "make reservedMemory of all NUMA nodes together equal to kubeReserved.memory + "
        "systemReserved.memory + evictionHard memory.available (100Mi without evictionHard)"
    ),
    Code.REMEDY_MEMORY_GROUP: (
        "kubelets before 1.32 compare each NUMA node by itself, where memory of several nodes is assigned: "
        f"upgrade the kubelet to 1.32 or later, or {_REMOVE}"
    ),
    Code.REMEDY_UNKNOWN_FIELD: "correct its name ({0}), or remove it",
    Code.REMEDY_GIVE_RESERVATION: (
        "give --kubelet-config FILE, or --reserved-memory 0:memory=1Gi for each NUMA node"
    ),
}
SENTENCES: Final = {code: ("state-file", phrase) for code, phrase in _PHRASES.items()}
