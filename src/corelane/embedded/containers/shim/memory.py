"""What the kernel's OOM killer did to a container, by the counters of its cgroups."""
# ruff: noqa: PTH123

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


def oom_kills(cgroups: Iterable[str]) -> int:
    """Return how many processes of a container the OOM killer has ended; 0 where that is not counted.

    Version 2 counts those of groups below as well (memory.events), version 1 those of each group alone
    (memory.oom_control, since Linux 4.13). The kernel counts before it sends SIGKILL.
    """
    for directory in cgroups:
        if (count := counted(f"{directory}/memory.events")) is not None:
            return count
        if counted(f"{directory}/memory.oom_control") is not None:
            counts = (counted(f"{path}/memory.oom_control") for path, _, _ in os.walk(directory))
            return sum(count or 0 for count in counts)
    return 0


def counted(path: str) -> int | None:
    try:
        with open(path) as file:
            counts = dict(line.split() for line in file)
    except OSError:
        return None
    return int(counts["oom_kill"]) if "oom_kill" in counts else None
