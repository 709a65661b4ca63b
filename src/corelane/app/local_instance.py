"""Where `corelane up` on this machine keeps its state, for the commands that read it.

It is one directory, with the kubeconfig of its server and, below `nodes/`, the records of its containers.
"""

from __future__ import annotations

import os
from pathlib import Path


def data_dir() -> Path:
    """Return `/var/lib/corelane` for root, else the user's state directory (XDG)."""
    if os.geteuid() == 0:
        return Path("/var/lib/corelane")
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "corelane"


def of_kubeconfig() -> Path:
    """Return the data directory whose instance $KUBECONFIG names; the default one where it names none."""
    named = os.environ.get("KUBECONFIG", "").split(os.pathsep)[0]
    parent = Path(named).absolute().parent
    return parent if named and (parent / "lock").is_file() and (parent / "nodes").is_dir() else data_dir()


def kubeconfig() -> Path | None:
    """Return the kubeconfig of `corelane up` on this machine, unless $KUBECONFIG is set."""
    ours = data_dir() / "kubeconfig"
    return ours if "KUBECONFIG" not in os.environ and ours.is_file() else None
