"""Removes what `corelane up` wrote into a data directory, and nothing else: `corelane down --purge`."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from corelane.embedded.up.log_file import NAME as LOG_NAME

_OWN_FILES: Final = re.compile(
    r"lock|kubeconfig(\.damaged-\d+)?|scheduler\.json|server\.pem|ca\.crt|apiserver\.(lock|db.*)|\.(kubeconfig|apiserver"
    r"|scheduler|server|ca)\..*\.tmp|" + re.escape(LOG_NAME) + r"(\.1)?"
)
"""Names of the files of a data directory; only those that `_MARKS` has are names that others hardly use."""
_MARKS: Final = ("apiserver.db*", "apiserver.lock", LOG_NAME)
_NODE_MARKS: Final = re.compile(
    r"(ledger|settings|simulated)\.json.*|containers|\.(ledger|settings|simulated)\.json\..*"
)


@dataclass(slots=True)
class Purged:
    """What became of a data directory: whether it was one, and the files that are left with the reason."""

    path: Path
    is_data_dir: bool
    foreign: list[Path] = field(default_factory=list)
    failed: dict[Path, str] = field(default_factory=dict)


def purge(directory: Path) -> Purged:
    """Remove what corelane wrote into a data directory, and the directory once it is empty.

    A directory without any file that only a data directory has is left as it is.
    """
    found = Purged(directory, _is_data_dir(directory))
    if found.is_data_dir:
        for path in sorted(directory.iterdir()):
            if path.name == "nodes" and path.is_dir() and not path.is_symlink():
                _purge_nodes(path, found)
            elif _OWN_FILES.fullmatch(path.name):
                _remove(path, found)
            else:
                found.foreign.append(path)
        _remove_if_empty(directory, found)
    return found


def _is_data_dir(directory: Path) -> bool:
    return any(True for mark in _MARKS for _ in directory.glob(mark)) or (
        _has_lock_alone(directory) or any(map(_is_node, _children(directory / "nodes")))
    )


def _has_lock_alone(directory: Path) -> bool:
    """Whether a start failed here before it wrote anything but its lock."""
    return [path.name for path in _children(directory)] == ["lock"]


def _is_node(path: Path) -> bool:
    return not path.is_symlink() and any(_NODE_MARKS.fullmatch(one.name) for one in _children(path))


def _children(path: Path) -> Iterator[Path]:
    return path.iterdir() if path.is_dir() else iter(())


def _purge_nodes(nodes: Path, found: Purged) -> None:
    for path in sorted(nodes.iterdir()):
        if _is_node(path):
            _remove(path, found)
        elif path.is_symlink() or not path.is_dir() or any(path.iterdir()):
            found.foreign.append(path)
        else:
            _remove_if_empty(path, found)
    _remove_if_empty(nodes, found)


def _remove(path: Path, found: Purged) -> None:
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    except OSError as error:
        found.failed[Path(error.filename or path)] = error.strerror or str(error)


def _remove_if_empty(path: Path, found: Purged) -> None:
    """Remove an empty directory; a symbolic link to one and a mount point stay."""
    if path.is_symlink() or path.is_mount() or any(path.iterdir()):
        return
    try:
        path.rmdir()
    except OSError as error:
        found.failed[path] = error.strerror or str(error)
