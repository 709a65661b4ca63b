"""State directories that are copies of another one (`cp -a`): recognised before anything is adopted.

A copy has the records of the original's containers, and its instance name, which is part of their cgroups'
names. Two owners would adopt, move and end the same processes.
"""

import os
import shlex
import time
from contextlib import suppress
from pathlib import Path

from corelane.embedded.containers import container_search
from corelane.embedded.containers.records import LOCK_SECONDS, RecordStore, StateInUse
from corelane.kernel import ownership, proc


def check(store: RecordStore) -> None:
    """Raise StateInUse if containers recorded here were started from another directory that is still there.

    The shims name the directory that they were started with: it is ours, or gone if ours was moved. Also if
    containers run whose processes cannot be read: their pids name other processes here, or none.
    """
    recorded = set(store.ids())
    if not recorded:
        return
    if hidden := container_search.unreadable(store.containers):
        raise StateInUse(
            f"{store.root}: {len(hidden)} of its containers run in another PID or user namespace, or their "
            f"processes cannot be read ({hidden[0].name}); start corelane there, or end them there with "
            "corelane down"
        )
    theirs = [
        shim.directory
        for shim in container_search.shims()
        if shim.id in recorded and _is_another(shim.directory, store.directory(shim.id))
    ]
    if theirs:
        original, number = theirs[0].parent.parent, len(theirs)
        count, them = (
            ("1 container still runs", "it") if number == 1 else (f"{number} containers run", "them")
        )
        raise StateInUse(
            f"{store.root}: a copy of {original}, of which {count}; use the original, or end {them}"
            f"{_ended_by(original)}, or start the copy without {them}: rm -r {_quoted(store.root)}"
        )


def _ended_by(state: Path) -> str:
    """Return the command that ends containers of a state directory, where it has a data directory's place."""
    is_of_node = len(state.parts) > 3 and state.parts[-3] == "nodes"
    return f" (corelane down --data-dir {_quoted(state.parents[2])})" if is_of_node else ""


def _is_another(directory: Path, ours: Path) -> bool:
    try:
        return not directory.samefile(ours)
    except OSError:
        return False


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))


def check_name(store: RecordStore) -> None:
    """Raise StateInUse if a process of our user has another state directory with our instance's name open.

    Such a process holds the lock of that directory, which no other user can open.
    """
    deadline = time.monotonic() + LOCK_SECONDS  # a child of a killed process may hold it until it execs
    while (other := _other_owner(store)) is not None:
        if time.monotonic() > deadline:
            pid, directory = other
            raise StateInUse(
                f"{store.root}: the instance name {store.instance} is in use by another corelane (process "
                f"{pid}) with {directory}: one directory is a copy of the other; stop that process, and "
                f"use one of them{_remedy(store)}"
            )
        time.sleep(0.02)


def _remedy(store: RecordStore) -> str:
    """Return how to start a directory anew that is the copy; "" if containers of it run."""
    if any(map(store.is_supervised, store.ids())):
        return ""
    return f"; if this is the copy: rm -r {_quoted(store.root)}"


def _other_owner(store: RecordStore) -> tuple[int, Path] | None:
    """Return a process of our user that has another directory with this name open, and that directory."""
    for pid in filter(proc.is_own, proc.pids()):
        for descriptor in proc.descriptors(pid):
            directory = _state_directory(pid, descriptor)
            if directory and not store.is_at(directory) and _name(directory) == store.instance:
                return pid, directory
    return None


def _state_directory(pid: int, descriptor: int) -> Path | None:
    """Return the state directory whose lock a process holds by a descriptor."""
    with suppress(OSError):
        path = (proc.PROC / str(pid) / "fd" / str(descriptor)).readlink()
        if path.name == "lock" and (held := proc.lock_held(pid, descriptor)):
            return path.parent if os.path.samestat(held, path.stat()) else None
    return None


def _name(directory: Path) -> str:
    with suppress(OSError, UnicodeDecodeError):
        return ownership.read(directory / "instance").decode().strip()
    return ""
