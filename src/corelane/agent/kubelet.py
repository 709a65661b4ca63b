"""What a kubelet with static CPU manager holds on this node, read from its state file while that may change.

A file that vanishes, or cannot be read, changes nothing: what it said last holds on, and that is told once.
"""

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from corelane.agent.messages import Tell
from corelane.cpuset import CPUSet
from corelane.node import Entry, NodeState
from corelane.node.invariants import Problem
from corelane.node.kubelet import checkpoint
from corelane.node.kubelet.checkpoint import Checkpoint, CheckpointError
from corelane.node.pools.takeover import pinned

__all__ = ["Kubelet", "Said", "news"]

_LARGEST: Final = 4 << 20
"""Bytes; a state file has some hundred for each container."""


@dataclass(frozen=True, slots=True)
class Said:
    """What the file says, or else why it cannot be known.

    `running` are the UIDs of pods that run under the kubelet, None where that was not asked or is not known.
    """

    checkpoint: Checkpoint | None = None
    running: frozenset[str] | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    """UID to `namespace/name`, of pods under it."""
    fault: str = ""


class Kubelet:
    """A kubelet beside us.

    `running` answers which pods (by UID) run under it, `names` what they are called; they may raise OSError.
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

    def look(self) -> Said:
        """Read the file, and where that does not tell who still runs, look for that too. Blocks."""
        try:
            with open(self.path, "rb", opener=_at_once) as file:
                content = file.read(_LARGEST)
            found = checkpoint.decode(content)
            _check(found)
            running = self._running() if self._running and found.policy == "none" else None
            names = self._names() if self._names and found.entries else {}
        except OSError as error:
            return Said(fault=f"{self.path}: {error.strerror or error}: {_KEPT}")
        except (CheckpointError, ValueError) as error:
            return Said(fault=f"{self.path}: {error}: {_KEPT}")
        return Said(found, None if running is None else frozenset(running), names)


def _check(found: Checkpoint) -> None:
    """Raises ValueError for what is no state that a kubelet of today keeps."""
    if found.policy not in ("static", "none"):
        raise ValueError(f"policyName: {found.policy!r} is neither static nor none")
    if found.version == 1:
        raise ValueError("version 1 names containers by id: start the kubelet, which rewrites it")


def _at_once(path: str, flags: int) -> int:
    """Open without waiting, as one would for a pipe that nobody writes to."""
    return os.open(path, flags | os.O_NONBLOCK)


_KEPT: Final = "what the kubelet pinned before stays as it is"


def news(before: NodeState, after: NodeState, problems: Iterable[Problem]) -> Iterator[Tell]:
    """What there is to say of CPUs that a kubelet pinned, or gave up."""
    was, now = pinned(before), pinned(after)
    if new := _but(now, was):
        yield _tell("KubeletCPUsHeld", f"CPUs {_cpus(new)} are held for what a kubelet pinned: {_names(new)}")
    if gone := _but(was, now):
        yield _tell("KubeletCPUsFreed", f"CPUs {_cpus(gone)} were a kubelet's, for {_names(gone)}: free now")
    for problem in problems:
        yield _tell("KubeletCPUsConflict", f"of what a kubelet pinned, {problem.text}", warning=True)
    if was and not now:
        yield _tell("TakeoverDone", "nothing that a kubelet pinned is left: all CPUs are corelane's")


def _tell(reason: str, text: str, *, warning: bool = False) -> Tell:
    return Tell("", reason, text, warning)


def _but(entries: Iterable[Entry], others: Iterable[Entry]) -> list[Entry]:
    known = {(one.key, one.cpus) for one in others}
    return [one for one in entries if one.cpus and (one.key, one.cpus) not in known]


def _cpus(entries: Iterable[Entry]) -> CPUSet:
    return CPUSet(cpu for one in entries for cpu in one.cpus)


def _names(entries: Iterable[Entry]) -> str:
    names = [f"{_title(one)} {one.cpus}" for one in entries]
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


def _title(one: Entry) -> str:
    """Who it is; names in a file may be anything."""
    title = f"{one.pod.removeprefix('/')}/{one.container}"
    return title if title.isprintable() else repr(title)
