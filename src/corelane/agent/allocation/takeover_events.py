"""The Node's events about CPUs that a kubelet beside the agent pinned or released."""

from collections.abc import Iterable, Iterator
from typing import Final

from corelane.agent.allocation.instructions import PublishEvent
from corelane.cpuset import CPUSet
from corelane.node import Entry, NodeState
from corelane.node.invariants import Problem
from corelane.node.recovery.takeover import pinned

_MOST_NAMES: Final = 8


def takeover_events(
    before: NodeState, after: NodeState, problems: Iterable[Problem]
) -> Iterator[PublishEvent]:
    """Yield the Node's events about CPUs that a kubelet pinned or released."""
    was, now = pinned(before), pinned(after)
    if added := _missing_from(was, now):
        yield _event("KubeletCPUsHeld", f"CPUs {_cpus(added)} pinned by a kubelet: {_titles(added)}")
    if released := _missing_from(now, was):
        yield _event("KubeletCPUsFreed", f"CPUs {_cpus(released)} released by a kubelet: {_titles(released)}")
    for problem in problems:
        yield _event("KubeletCPUsConflict", f"pinned by a kubelet: {problem.text}", warning=True)
    if was and not now:
        yield _event("TakeoverDone", "no CPUs are pinned by a kubelet any more: corelane allocates all CPUs")


def _event(reason: str, text: str, *, warning: bool = False) -> PublishEvent:
    return PublishEvent("", reason, text, warning)


def _missing_from(others: Iterable[Entry], entries: Iterable[Entry]) -> list[Entry]:
    keys = {(entry.key, entry.cpus) for entry in others}
    return [entry for entry in entries if entry.cpus and (entry.key, entry.cpus) not in keys]


def _cpus(entries: Iterable[Entry]) -> CPUSet:
    return CPUSet(cpu for entry in entries for cpu in entry.cpus)


def _titles(entries: list[Entry]) -> str:
    titles = [f"{_title(entry)} {entry.cpus}" for entry in entries]
    more = f" and {len(titles) - _MOST_NAMES} more" if len(titles) > _MOST_NAMES else ""
    return ", ".join(titles[:_MOST_NAMES]) + more


def _title(entry: Entry) -> str:
    """Return pod and container; names in a file may contain anything."""
    title = f"{entry.pod.removeprefix('/')}/{entry.container}"
    return title if title.isprintable() else repr(title)
