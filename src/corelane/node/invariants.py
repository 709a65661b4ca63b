"""What must hold of every ledger, checked in full; and what is wrong, as plain values."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from corelane.cpuset import CPUSet, format_list
from corelane.node.entries import Entry, claimed_before, exclusive_mask
from corelane.node.ledger import NodeState

__all__ = ["Problem", "problem", "validate"]


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong with a ledger: `code` is a short stable key, `text` says what and what follows."""

    code: str
    text: str
    uid: str = ""
    container: str = ""
    cpus: CPUSet = field(default_factory=CPUSet)


def problem(code: str, entry: Entry, text: str, cpus: int = 0) -> Problem:
    """A problem of one container, whose name is put in front of the text."""
    text = f"{entry.pod}/{entry.container}: {text}"
    return Problem(code, text, entry.uid, entry.container, CPUSet.from_mask(cpus))


def validate(state: NodeState) -> list[Problem]:
    """Every invariant that does not hold; empty for every state that this package hands out.

    No CPU has two owners (but for init containers, which lend theirs within the pod), exclusive CPUs are
    usable and never reserved, the shared pool is not empty, and what is derived agrees with the entries.
    """
    return [*_entries(state), *_owners(state), *_pool(state), *_derived(state)]


def _owners(state: NodeState) -> Iterator[Problem]:
    for entry, twice in claimed_before(state.entries.values()):
        if twice:
            yield problem("doubled", entry, f"CPUs {format_list(twice)} also belong to another", twice)


def _entries(state: NodeState) -> Iterator[Problem]:
    for key, entry in state.entries.items():
        if key != entry.key:
            yield problem("key", entry, f"is filed under {key}")
        if entry.exclusive and not entry.cpus:
            yield problem("exclusive", entry, f"shares {entry.sharing}, but has no CPUs")
        if missing := entry.cpus.mask & ~state.topology.all:
            yield problem("lost", entry, f"CPUs {format_list(missing)} cannot be used here", missing)
        if reserved := entry.cpus.mask & state.reserved.mask:
            yield problem("reserved", entry, f"has reserved CPUs {format_list(reserved)}", reserved)
        if entry.uid not in state.pods:
            yield problem("pod", entry, "its pod is not in the ledger")


def _pool(state: NodeState) -> Iterator[Problem]:
    strict = state.config.options.strict_cpu_reservation
    if not state.reserved and not strict:
        yield Problem("reserved", "no CPU is reserved for the shared pool")
    if gone := state.reserved - state.usable:
        yield Problem("reserved", f"reserved CPUs {gone} cannot be used here", cpus=gone)
    if not state.shared_pool:
        yield Problem("pool", "the shared pool is empty")
    elif not strict and not state.reserved <= state.shared_pool:
        yield Problem("pool", f"the shared pool {state.shared_pool} lacks reserved CPUs of {state.reserved}")


def _derived(state: NodeState) -> Iterator[Problem]:
    exclusive = exclusive_mask(state.entries.values())
    if exclusive != state.exclusive.mask:
        yield Problem(
            "derived", f"exclusive is '{state.exclusive}', its entries say '{format_list(exclusive)}'"
        )
    if state.requested != sum(state.pods.values()):
        yield Problem("derived", f"requested is {state.requested}m, its pods say {sum(state.pods.values())}m")
