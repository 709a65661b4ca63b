"""State directories that are copies of another one (`cp -a`): recognised before anything is adopted.

A copy has the records of the original's containers, and its instance name, which is part of their cgroups'
names. Two owners would adopt, move and end the same processes.
"""

import errno
import os
import shlex
import socket
import struct
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from corelane.runtime import container_search
from corelane.runtime.records import LOCK_SECONDS, RecordStore, StateInUse

_CREDENTIALS: Final = struct.Struct("3i")
"""pid, uid and gid of the listening process (unix(7), SO_PEERCRED)."""


def check(store: RecordStore) -> None:
    """Raise StateInUse if containers recorded here were started from another directory that is still there.

    The shims name the directory that they were started with: it is ours, or gone if ours was moved.
    """
    recorded = set(store.ids())
    if not recorded:
        return
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


def claim_name(store: RecordStore) -> None:
    """Take the instance's name, which one process of this machine uses at a time. Raises StateInUse, OSError.

    It is a socket in the abstract namespace, which the kernel closes when the process ends, however it ends.
    """
    address = f"\0corelane-instance-{store.instance}"
    name = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    deadline = time.monotonic() + LOCK_SECONDS  # a child of a killed process may hold it until it execs
    while not _bound(name, address):
        if time.monotonic() > deadline:
            name.close()
            raise StateInUse(
                f"{store.root}: the instance name {store.instance} is in use by another corelane"
                f"{_holder(address)} with another data directory: one is a copy of the other; stop that one, "
                f"or start this one under a new name: rm -r {_quoted(store.root)}"
            )
        time.sleep(0.02)
    name.listen()
    store.hold(name)


def _bound(name: socket.socket, address: str) -> bool:
    try:
        name.bind(address)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        return False
    return True


def _holder(address: str) -> str:
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.setblocking(False)
        asking.connect(address)
        data = asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        pid = _CREDENTIALS.unpack(data)[0]
        return f" (process {pid})" if pid != os.getpid() else ""
    return ""
