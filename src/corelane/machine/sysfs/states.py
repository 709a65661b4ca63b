"""Which CPUs are online, present, isolated and tickless."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from corelane.cpuset import MAX_CPU, CPUSetError, bits, named, parse_hex, parse_list, verb
from corelane.kernel.files import Tree
from corelane.machine.model import MachineError

_BLANKS = "\0 \t\n"
"""Around a value; cluster_cpus_list ended with a NUL on the first kernels that had it."""


def read_int(tree: Tree, path: str) -> int | None:
    """A decimal number, possibly negative; None when there is none."""
    text = (tree.read(path) or "").strip(_BLANKS)
    return int(text) if text.removeprefix("-").isdecimal() and text.isascii() and len(text) < 20 else None


def read_list(tree: Tree, path: str) -> int | None:
    """The mask of a list such as `0-3,8`; None when the file is missing or holds none (`(null)`, say)."""
    return _parsed(parse_list, tree, path)


def read_mask(tree: Tree, *paths: str, holding: int = 0) -> int | None:
    """The first CPU set among files that holds the CPUs of the mask `holding`.

    Files whose name ends in `list` have lists, others hexadecimal masks.
    """
    for path in paths:
        mask = _parsed(parse_list if path.endswith("list") else parse_hex, tree, path)
        if mask is not None and mask & holding == holding:
            return mask
    return None


def _parsed(parse: Callable[[str], int], tree: Tree, path: str) -> int | None:
    text = tree.read(path)
    try:
        return None if text is None else parse(text.strip(_BLANKS))
    except CPUSetError:
        return None


def numbered(names: Iterable[str], prefix: str) -> list[int]:
    """The numbers in names such as `cpu7`, ascending; other names are passed over."""
    tails = (name.removeprefix(prefix) for name in names if name.startswith(prefix))
    return sorted(int(tail) for tail in tails if tail.isascii() and tail.isdecimal() and len(tail) < 6)


def first_of(*values: int | None) -> int:
    """The first value that is neither missing nor 0; else 0."""
    return next((value for value in values if value), 0)


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


CPU_DIR = "devices/system/cpu"


@dataclass(frozen=True, slots=True)
class States:
    """Masks of CPUs."""

    online: int
    offline: int
    isolated: int
    nohz_full: int
    managed_irq: int


def read(sys: Tree, proc: Tree, source: str, notes: list[str], running: int = 0) -> States:
    """From the kernel's lists, else from the CPUs' directories and the kernel's command line.

    `running` is the mask of CPUs that this process may run on, which proves them to be online.
    """
    directories = sum(1 << cpu for cpu in numbered(sys.names(CPU_DIR), "cpu"))
    if not directories:
        raise MachineError(
            f"{source}: no CPUs under {CPU_DIR}; give a directory or an archive that holds a copy of /sys"
        )
    present = first_of((read_list(sys, f"{CPU_DIR}/present") or 0) & directories, directories)
    present |= running & directories
    online = _online(sys, present, running, notes)
    cmdline = proc.read("cmdline") or ""
    isolated, managed_irq = isolcpus(cmdline, present)
    return States(
        online=online,
        offline=present & ~online,
        isolated=first_of(read_list(sys, f"{CPU_DIR}/isolated"), isolated) & present,
        nohz_full=first_of(
            read_list(sys, f"{CPU_DIR}/nohz_full"), kernel_list(argument(cmdline, "nohz_full"), present)
        )
        & present,
        managed_irq=managed_irq,
    )


def _online(sys: Tree, present: int, running: int, notes: list[str]) -> int:
    """The list of online CPUs; each CPU's own file where it lacks a running one (lxcfs renumbers it)."""
    listed = read_list(sys, f"{CPU_DIR}/online") or 0
    if listed & ~present:
        gone = listed & ~present
        notes.append(f"{named(gone)} {verb(gone)} listed as online but {verb(gone)} not there: left out")
    if running & ~present:
        notes.append(
            f"this process may run on {named(running & ~present)}, missing from {CPU_DIR}: not the kernel's "
            "(lxcfs in a container?); run corelane outside of the container for the whole machine"
        )
    own = {cpu: (sys.read(f"{CPU_DIR}/cpu{cpu}/online") or "").strip() for cpu in bits(present & ~listed)}
    if not listed & present:
        return present & ~sum(1 << cpu for cpu, text in own.items() if text == "0")
    # A CPU that goes off-line meanwhile has 0 in its own file.
    hidden = sum(1 << cpu for cpu, text in own.items() if text == "1" and running >> cpu & 1)
    if not hidden:
        return listed & present
    notes.append(
        f"{CPU_DIR}/online lists {named(listed)}, but this process may run on {named(hidden)}: the file is "
        "not the kernel's (lxcfs in a container?); each CPU's own file used"
    )
    return listed & present | sum(1 << cpu for cpu, text in own.items() if text == "1")
