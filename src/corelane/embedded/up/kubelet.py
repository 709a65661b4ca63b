"""A kubelet beside corelane on this machine: its state file, its running pods, and their names."""

from __future__ import annotations

from pathlib import Path

from corelane.agent.kubelet.kubelet_allocations import KubeletStateFile
from corelane.app.state import cgroups

CGROUPS = "/sys/fs/cgroup"
LOGS = Path("/var/log/pods")
"""Where a kubelet has a directory `NAMESPACE_NAME_UID` for each pod."""


def beside(state_file: Path | None, mounted: str = CGROUPS, logs: Path = LOGS) -> KubeletStateFile | None:
    """Return the kubelet with that state file; None without a state file."""
    return KubeletStateFile(state_file, lambda: running(mounted), lambda: names(logs)) if state_file else None


def names(logs: Path = LOGS) -> dict[str, str]:
    """Return `namespace/name` by UID of the pods with logs; empty where the directory cannot be read."""
    try:
        parts = [path.name.split("_") for path in logs.iterdir()]
    except OSError:
        return {}
    return {part[2]: f"{part[0]}/{part[1]}" for part in parts if len(part) == 3}


def running(mounted: str = CGROUPS) -> set[str] | None:
    """Return the UIDs of the pods with processes in a kubelet's cgroups; None where these are not in view.

    A container with a cgroup namespace of its own sees no other cgroups. Raises StateFileError.
    """
    return {group.uid for group in cgroups.read(mounted)} if cgroups.has_pods(mounted) else None
