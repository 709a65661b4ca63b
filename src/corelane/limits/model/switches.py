"""What changed in the kernel's bandwidth control over the years: a switch each, and kernels as presets.

Distributions port changes back, so a version number is where to begin, not the truth about a node.
"""

import re
from dataclasses import dataclass, replace
from typing import Literal

from corelane.limits.model.clock import MS, US

Order = Literal["head", "mixed", "tail"]


@dataclass(frozen=True, slots=True)
class Switches:
    """How a kernel controls bandwidth. Times in ns."""

    order: Order = "tail"
    """Where a throttled CPU joins the list that refills serve from its head: there (c06f04c70489, 3.17),
    there only while a refill is being handed out (baa9be4ffb55, 4.19), or at its tail (e98fa02c4f2e, 5.8)."""

    expiry: bool = False
    """Slices not used by the refill are lost (512ac999d275, 4.18, until de53fd7aedb1, 5.4)."""

    burst: bool = True
    """cpu.max.burst is there (f4183717b370, 5.14)."""

    clock_needs_tasks: bool = True
    """Throttled time of a CPU counts only while there is a task it holds back (79462e8c879a, 6.6)."""

    task_throttling: bool = True
    """Tasks are set aside one by one on their way out of the kernel, not whole CPUs at once (6.18)."""

    eevdf: bool = True
    """Who sleeps gets no head start over who runs (6.6)."""

    slice_ns: int = 5 * MS
    """What a CPU takes from the pool at once: sched_cfs_bandwidth_slice_us."""

    keep_ns: int = 1 * MS
    """What an idle CPU does not hand back: min_cfs_rq_runtime."""

    slack_ns: int = 5 * MS
    """How long after being handed back runtime is handed out: cfs_bandwidth_slack_period."""

    near_refill_ns: int = 2 * MS
    """Runtime is not handed out so close to a refill: min_bandwidth_expiration."""

    release_ns: int = 4 * US
    """What releasing one CPU takes while a refill is handed out; matters to the order "mixed" only."""

    base_slice_ns: int = 700 * US
    """How long a task runs before another gets its turn, on one CPU; grows with the number of CPUs."""


LATEST = Switches()
_V6_6 = replace(LATEST, task_throttling=False, base_slice_ns=750 * US)
_V5_14 = replace(_V6_6, eevdf=False, clock_needs_tasks=False)
_V5_8 = replace(_V5_14, burst=False)
_V5_4 = replace(_V5_8, order="mixed")
_V4_19 = replace(_V5_4, expiry=True)
_V4_18 = replace(_V4_19, order="head")
_V3_17 = replace(_V4_18, expiry=False)

KERNELS = {
    "3.17": _V3_17,
    "4.18": _V4_18,
    "4.19": _V4_19,
    "5.4": _V5_4,
    "5.8": _V5_8,
    "5.14": _V5_14,
    "6.6": _V6_6,
    "6.18": LATEST,
}
"""Kernels in which something changed, oldest first."""

_VERSION = re.compile(r"(\d+)\.(\d+)(?:[.\-+].*)?")


def for_kernel(version: str) -> Switches:
    """The preset of the newest kernel in `KERNELS` that is not newer than such as `5.10` or `6.1.0-18-amd64`.

    Raises ValueError for text that is not a version and for kernels before 3.17.
    """
    found = _VERSION.fullmatch(version)
    if not found:
        raise ValueError(f"{version!r} is not a kernel version: write such as 5.10 or 6.18")
    wanted = int(found[1]), int(found[2])
    known = [name for name in KERNELS if tuple(map(int, name.split("."))) <= wanted]
    if not known:
        raise ValueError(f"kernel {version} is older than the oldest modelled kernel, {next(iter(KERNELS))}")
    return KERNELS[known[-1]]
