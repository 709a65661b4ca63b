"""Which cgroup hierarchies are mounted where, and where in them we are ourselves."""

import re
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Mount", "mounts"]

_ESCAPE = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mount:
    """One mounted hierarchy: its directory, its controllers (v1), and our own group's directory in it."""

    version: int
    controllers: frozenset[str]
    directory: Path
    own: Path


def mounts(root: Path = Path("/")) -> list[Mount]:
    """The cgroup hierarchies that /proc/self/mountinfo and /proc/self/cgroup name, below `root`."""
    own = _own_groups((root / "proc/self/cgroup").read_text())
    lines = (root / "proc/self/mountinfo").read_text().splitlines()
    return [mount for line in lines if (mount := _mount(line, own, root)) is not None]


def _own_groups(text: str) -> dict[str, str]:
    """Controller → our own path, from lines such as `3:cpuset:/a` (v1) and `0::/b` (v2, no name)."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        found.update(dict.fromkeys(controllers.split(","), path))
    return found


def _mount(line: str, own: dict[str, str], root: Path) -> Mount | None:
    """One line of mountinfo (man proc_pid_mountinfo); None if no cgroups are mounted there."""
    fields, _, tail = line.partition(" - ")
    kind, _, options = tail.split(" ", 2)
    if kind not in ("cgroup", "cgroup2"):
        return None
    within, place = (_ESCAPE.sub(lambda code: chr(int(code[1], 8)), text) for text in fields.split(" ")[3:5])
    directory = root / place.lstrip("/")
    names = frozenset(options.split(",")) & own.keys() if kind == "cgroup" else frozenset[str]()
    path = own.get(min(names, default=""), "/")
    return Mount(1 if kind == "cgroup" else 2, names, directory, directory / _relative(path, within))


def _relative(path: str, within: str) -> str:
    """Our path as seen from a mount that shows what lies below `within`; empty if we are not there."""
    inside = path == within or path.startswith(within.rstrip("/") + "/")
    return path[len(within.rstrip("/")) :].lstrip("/") if inside else ""
