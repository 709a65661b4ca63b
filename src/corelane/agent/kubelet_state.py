"""CPUs pinned by a kubelet beside the agent, read from its `cpu_manager_state` file.

If the file is missing or unreadable, its last content stays in effect, and the fault is reported once.
"""

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from corelane.agent.instructions import PublishEvent
from corelane.cpuset import CPUSet
from corelane.node import Entry, NodeState
from corelane.node.invariants import Problem
from corelane.node.kubelet import checkpoint
from corelane.node.kubelet.checkpoint import Checkpoint, CheckpointError
from corelane.node.recovery.takeover import pinned

_LARGEST: Final = 4 << 20
"""Bytes; a state file has some hundred for each container."""
_UNCHANGED: Final = "CPUs pinned by the kubelet stay allocated as last read"
_MOST_NAMES: Final = 8


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


class KubeletStateFile:
    """The state file of a kubelet beside the agent.

    `running` returns the UIDs of the pods under that kubelet, `names` their names; both may raise OSError.
    """

    def __init__(
        self,
        path: Path,
        running: Callable[[], Collection[str]] | None = None,
        names: Callable[[], Mapping[str, str]] | None = None,
    ) -> None:
        self.path = path
        self._running = running
        self._names = names

    def read(self) -> KubeletState:
        """Read the file; where its policy is none, ask for the running pods, too. Blocks."""
        try:
            with open(self.path, "rb", opener=_open_nonblocking) as file:
                content = file.read(_LARGEST)
            state = checkpoint.decode(content)
            _check(state)
            running = self._running() if self._running and state.policy == "none" else None
            names = self._names() if self._names and state.entries else {}
        except OSError as error:
            return KubeletState(fault=f"{self.path}: {error.strerror or error}: {_UNCHANGED}")
        except (CheckpointError, ValueError) as error:
            return KubeletState(fault=f"{self.path}: {error}: {_UNCHANGED}")
        return KubeletState(state, None if running is None else frozenset(running), names)


def _check(state: Checkpoint) -> None:
    """Raise ValueError for a state that a current kubelet does not write."""
    if state.policy not in ("static", "none"):
        raise ValueError(f"policyName: {state.policy!r} is neither static nor none")
    if state.version == 1:
        raise ValueError("version 1 names containers by id; start the kubelet to rewrite the file")


def _open_nonblocking(path: str, flags: int) -> int:
    """Open without waiting, for a path that is a pipe without a writer."""
    return os.open(path, flags | os.O_NONBLOCK)


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
