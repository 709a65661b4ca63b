"""Numbers and CPU sets in sysfs files, read leniently: what makes no sense is as good as missing."""

from collections.abc import Callable, Iterable

from corelane.cpuset import CPUSetError, parse_hex, parse_list
from corelane.kernel.files import Tree

__all__ = ["first_of", "numbered", "read_int", "read_list", "read_mask"]

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
