"""CPUs pinned by a kubelet beside the agent, read from its `cpu_manager_state` file.

If the file is missing or unreadable, its last content stays in effect, and the fault is reported once.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from corelane import input_files
from corelane.node.kubelet import checkpoint
from corelane.node.kubelet.checkpoint import Checkpoint, CheckpointError

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


class KubeletStateFile:
    """The state file of a kubelet beside the agent.

    `running` returns the UIDs of the pods under that kubelet, None if they are not in view; `names` their
    names. Both may raise OSError.
    """

    def __init__(
        self,
        path: Path,
        running: Callable[[], Collection[str] | None] | None = None,
        names: Callable[[], Mapping[str, str]] | None = None,
    ) -> None:
        self.path = path
        self._running = running
        self._names = names

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
