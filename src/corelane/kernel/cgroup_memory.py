"""Memory limits of our own cgroups, in versions 1 and 2.

What a limited group may use includes no swap, as the kubelet has it (NoSwap). The kernel rounds a limit down
to pages. In version 2 the OOM killer ends all processes of a container at once (memory.oom.group), as the
kubelet asks for since 1.28; version 1 ends one process.
"""

import errno
from typing import Final

from corelane.kernel.cgroup_tree import Groups
from corelane.kernel.cgroupfs import CgroupError

CONTROLLER: Final = "memory"
_UNLIMITED: Final = 1 << 62
"""Version 1 shows no limit as the largest multiple of a page (2^63 - 4096 bytes)."""


def is_limited(groups: Groups) -> bool:
    """Whether memory limits can be set: the memory controller is among those of the groups."""
    return CONTROLLER in groups.bases


def limit(groups: Groups, group: str) -> int | None:
    """Return a group's memory limit in bytes; None without one. Raises CgroupError."""
    if not is_limited(groups):
        return None
    return _amount(groups, group, "memory.max" if groups.version == 2 else "memory.limit_in_bytes")


def set_limit(groups: Groups, group: str, amount: int | None) -> None:
    """Limit a group's memory to an amount in bytes; None lifts the limit.

    Nothing is written where the controller is not available. Raises CgroupError.
    """
    if not is_limited(groups) or limit(groups, group) == amount:
        return
    if groups.version == 2:
        _write(groups, group, "memory.max", "max" if amount is None else str(amount))
        _write(groups, group, "memory.swap.max", "max" if amount is None else "0", optional=True)
    else:
        _set_limit1(groups, group, amount)


def end_together(groups: Groups, group: str) -> None:
    """Let the OOM killer end a container as a whole, where the kernel can (version 2). Raises CgroupError."""
    if is_limited(groups) and groups.version == 2:
        _write(groups, group, "memory.oom.group", "1", optional=True)


def _set_limit1(groups: Groups, group: str, amount: int | None) -> None:
    """The limit of memory and swap together may not be less than that of memory alone at any time."""
    names = ["memory.limit_in_bytes", "memory.memsw.limit_in_bytes"]
    if _grows(groups, group, amount):
        names.reverse()
    for name in names:
        _write(groups, group, name, "-1" if amount is None else str(amount), optional="memsw" in name)


def _grows(groups: Groups, group: str, amount: int | None) -> bool:
    try:
        before = _amount(groups, group, "memory.memsw.limit_in_bytes")
    except CgroupError as error:
        if error.errno != errno.ENOENT:
            raise
        return False
    return before is not None and (amount is None or amount > before)


def _amount(groups: Groups, group: str, name: str) -> int | None:
    text = groups.files.read(groups.bases[CONTROLLER] / group / name)
    return None if text == "max" or int(text) > _UNLIMITED else int(text)


def _write(groups: Groups, group: str, name: str, text: str, *, optional: bool = False) -> None:
    """`optional`: the kernel may lack the file (swap accounting is off, or the kernel is older)."""
    try:
        groups.files.write(groups.bases[CONTROLLER] / group / name, text)
    except CgroupError as error:
        if not (optional and error.errno == errno.ENOENT):
            raise
