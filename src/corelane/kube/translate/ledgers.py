"""A node's ledger as an annotation, and back: its generation, settings, and who has CPUs alone.

Containers in the shared pool are not listed: the API server already knows which pods a node has.
"""

from dataclasses import replace
from typing import Any

import msgspec

from corelane.cpuset import CPUSet, CPUSetError
from corelane.kube.keys import CPU_ALLOCATIONS
from corelane.kube.meta import Wire
from corelane.kube.translate.errors import TranslationError
from corelane.machine.model import Machine
from corelane.node import Entry, NodeConfig, NodeConfigError, NodeState, Origin, Phase, new
from corelane.node.entries import Key, Sharing, claimed_before
from corelane.node.ledger import with_entries
from corelane.workload import ContainerKind

__all__ = ["dump", "load"]


class _Owned(Wire, frozen=True):
    """A container and the CPUs that it has alone."""

    uid: str
    pod: str
    container: str
    cpus: str
    kind: ContainerKind = ContainerKind.APP
    qos_class: str = ""
    origin: Origin = Origin.CORELANE
    phase: Phase = Phase.RESERVED
    allocator: str = ""
    cpu_request: int = 0
    sharing: Sharing = Sharing.ALONE


class _Ledger(Wire, frozen=True):
    generation: int = 0
    config: dict[str, Any] = msgspec.field(default_factory=dict)
    """The node's settings but for its reserved CPUs, so that admission is the same here and there."""
    reserved: str = ""
    pods: dict[str, int] = msgspec.field(default_factory=dict)
    """MilliCPU that each pod with exclusive CPUs holds at once, by UID."""
    entries: tuple[_Owned, ...] = ()


def dump(state: NodeState) -> str:
    """What the scheduler must know of a node's state; the text changes only when that does."""
    owners = [entry for entry in state.entries.values() if entry.exclusive]
    pods = {entry.uid: state.pods.get(entry.uid, 0) for entry in owners}
    config = msgspec.to_builtins(replace(state.config, reserved=None, reserved_count=None))
    ledger = _Ledger(state.generation, config, str(state.reserved), pods, tuple(map(_owned, owners)))
    return msgspec.json.encode(ledger).decode()


def _owned(entry: Entry) -> _Owned:
    return _Owned(
        entry.uid,
        entry.pod,
        entry.container,
        str(entry.cpus),
        entry.kind,
        entry.cls,
        entry.origin,
        entry.phase,
        entry.allocator,
        entry.cpu_request,
        entry.sharing,
    )


def load(text: str, machine: Machine) -> NodeState:
    """The state of that machine according to `dump`; an empty text is a node where nothing is exclusive.

    Raises TranslationError if the text is broken, or does not fit the machine or itself.
    """
    ledger = _decoded(text) if text else _Ledger()
    reserved = _cpus(text, "reserved", ledger.reserved) or None
    try:
        config = msgspec.convert(ledger.config | {"reserved": None}, NodeConfig)
        state = new(machine, replace(config, reserved=reserved))
    except (NodeConfigError, msgspec.ValidationError) as error:
        raise _broken(text, f"config: {error}") from error
    entries = {(owned.uid, owned.container): _entry(text, owned) for owned in ledger.entries}
    _check(text, state, entries)
    return replace(with_entries(state, entries, ledger.pods), generation=ledger.generation)


def _entry(text: str, owned: _Owned) -> Entry:
    cpus = _cpus(text, f"the entry of {owned.pod}/{owned.container}", owned.cpus)
    return Entry(
        uid=owned.uid,
        container=owned.container,
        pod=owned.pod,
        cpus=cpus,
        sharing=owned.sharing,
        cls=owned.qos_class,
        kind=owned.kind,
        origin=owned.origin,
        phase=owned.phase,
        allocator=owned.allocator,
        cpu_request=owned.cpu_request,
    )


def _check(text: str, state: NodeState, entries: dict[Key, Entry]) -> None:
    for entry, twice in claimed_before(entries.values()):
        if missing := entry.cpus.mask & ~state.topology.all:
            what = f"CPUs {CPUSet.from_mask(missing)}, which the machine does not have"
            raise _broken(text, f"{entry.pod}/{entry.container} owns {what}")
        if twice:
            what = f"CPUs {CPUSet.from_mask(twice)}, which another has too"
            raise _broken(text, f"{entry.pod}/{entry.container} owns {what}")


def _decoded(text: str) -> _Ledger:
    try:
        return msgspec.json.decode(text, type=_Ledger)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise _broken(text, str(error)) from error


def _cpus(text: str, what: str, value: str) -> CPUSet:
    try:
        return CPUSet.parse(value)
    except CPUSetError as error:
        raise _broken(text, f"{what}: {value!r} is not a CPU list: {error}") from error


def _broken(text: str, why: str) -> TranslationError:
    return TranslationError(f"metadata.annotations[{CPU_ALLOCATIONS}]", text, why)
