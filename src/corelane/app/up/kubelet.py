"""The kubelet beside corelane on this machine: its state file, which pods run under it, and their names."""

from __future__ import annotations

from pathlib import Path

from corelane.agent.kubelet_state import KubeletStateFile
from corelane.app.state import cgroups

__all__ = ["beside", "names", "running"]

CGROUPS = "/sys/fs/cgroup"
LOGS = Path("/var/log/pods")
"""Where a kubelet has a directory `NAMESPACE_NAME_UID` for each pod."""


def beside(state_file: Path | None, mounted: str = CGROUPS, logs: Path = LOGS) -> KubeletStateFile | None:
    """The kubelet with that state file; None where none is named."""
    return KubeletStateFile(state_file, lambda: running(mounted), lambda: names(logs)) if state_file else None


def names(logs: Path = LOGS) -> dict[str, str]:
    """UID to `namespace/name` of the pods that have logs; nothing where these cannot be seen."""
    try:
        parts = [path.name.split("_") for path in logs.iterdir()]
    except OSError:
        return {}
    return {uid: f"{namespace}/{name}" for namespace, name, uid in filter(lambda one: len(one) == 3, parts)}


def running(mounted: str = CGROUPS) -> set[str]:
    """The UIDs of the pods with processes in a kubelet's cgroups. Raises StateFileError."""
    return {group.uid for group in cgroups.read(mounted)}
