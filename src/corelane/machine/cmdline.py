"""CPU sets on the kernel's command line, isolcpus= and nohz_full= (admin-guide/kernel-parameters)."""

import re

from corelane.cpuset import MAX_CPU

__all__ = ["argument", "isolcpus", "kernel_list"]

_RANGE = re.compile(r"([0-9]+|N)(?:-([0-9]+|N)(?::([0-9]+)/([0-9]+))?)?", re.ASCII)
_FLAG = re.compile(r"[a-z_]+")


def argument(cmdline: str, name: str) -> str:
    """The value of the last `name=value`; "" when it is not given."""
    values = [word.partition("=")[2] for word in cmdline.split() if word.startswith(f"{name}=")]
    return values[-1].strip('"') if values else ""


def kernel_list(text: str, possible: int) -> int:
    """The mask of a list with `all`, `N` (the last CPU) and strides `0-31:2/8`, cut to the `possible` CPUs.

    0 when it is malformed: the kernel ignores such a parameter too.
    """
    if text == "all":
        return possible
    mask = 0
    for piece in text.split(",") if text else ():
        match = _RANGE.fullmatch(piece)
        if not match:
            return 0
        mask |= _range_mask(match, max(possible.bit_length() - 1, 0))
    return mask & possible


def _range_mask(match: re.Match[str], last_cpu: int) -> int:
    first, last = (last_cpu if end == "N" else int(end) for end in (match[1], match[2] or match[1]))
    used, group = int(match[3] or 1), int(match[4] or 1)
    last = min(last, MAX_CPU)
    if group == 0 or used > group:
        return 0
    return sum(1 << cpu for cpu in range(first, last + 1) if (cpu - first) % group < used)


def isolcpus(cmdline: str, possible: int) -> tuple[int, int]:
    """The masks (kept from scheduling domains, kept from managed interrupts) of `isolcpus=[flag,…]list`."""
    words = argument(cmdline, "isolcpus").split(",")
    flags = {word for word in words if _FLAG.fullmatch(word) and word != "all"}
    mask = kernel_list(",".join(word for word in words if word not in flags), possible)
    domain = mask if not flags or "domain" in flags else 0
    return domain, mask if "managed_irq" in flags else 0
