"""The kubelet beside corelane on this machine: its state file, and which pods run under it."""

from __future__ import annotations

from pathlib import Path

from corelane.agent.kubelet import Kubelet
from corelane.app import state_cgroups

__all__ = ["beside", "running"]

CGROUPS = "/sys/fs/cgroup"


def beside(state_file: Path | None, cgroups: str = CGROUPS) -> Kubelet | None:
    """The kubelet with that state file; None where none is named."""
    return Kubelet(state_file, lambda: running(cgroups)) if state_file else None


def running(cgroups: str = CGROUPS) -> set[str]:
    """The UIDs of the pods with processes in a kubelet's cgroups. Raises StateFileError."""
    return {group.uid for group in state_cgroups.read(cgroups)}
