"""Files and directories that no other user can change: checked before anything in them is believed.

A path is as safe as every directory and symbolic link on the way to it: whoever may write to one of them can
put another file in the place of ours. Sources: path_resolution(7), user_namespaces(7), acl(5).
"""

import errno
import grp
import os
import pwd
import shlex
import stat
from functools import lru_cache
from pathlib import Path
from typing import Final

from corelane.kernel.files import read_all

_MOST_LINKS: Final = 40
_UNMAPPED: Final = (
    "this process's user has no id in its user namespace, where files of all users outside look like its "
    "own; map it: unshare --map-root-user, or --map-current-user"
)


class UntrustedPath(PermissionError):  # noqa: N818 - a state of the path
    """Another user can change what a path leads to; the message names the directory and the remedy."""

    def __init__(self, text: str) -> None:
        super().__init__(errno.EPERM, text)

    def __str__(self) -> str:
        return str(self.strerror)


def check(path: Path) -> None:
    """Raise UntrustedPath if another user than root and ours can change what `path` leads to.

    What is missing is fine: it is made in a directory that was checked. Symbolic links are followed as far as
    they are root's or ours. Raises OSError.

    In a user namespace the machine's root and all other users outside have one id. It is taken for root's at
    the top of the path alone: not in a sticky directory, where anyone makes entries, nor in one of ours.
    """
    if is_outside(os.geteuid()):
        raise UntrustedPath(f"{path}: {_UNMAPPED}")
    todo = list(reversed(path.absolute().parts[1:]))
    here, step, links = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC), "/", 0
    try:
        at_top = _check_one(path, step, os.fstat(here), last=not todo, at_top=True)
        while todo:
            name = todo.pop()
            try:
                status = os.stat(name, dir_fd=here, follow_symlinks=False)
            except FileNotFoundError:
                return
            step = f"{step.rstrip('/')}/{name}"
            of_entry = _check_one(path, step, status, last=not todo, at_top=at_top)
            if stat.S_ISLNK(status.st_mode):
                links += 1
                if links > _MOST_LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
                target = os.readlink(name, dir_fd=here)
                todo += reversed([part for part in target.split("/") if part not in ("", ".")])
                if target.startswith("/"):
                    here, step = _replaced(here, os.open("/", os.O_PATH | os.O_CLOEXEC)), "/"
                    at_top = _is_at_top(os.fstat(here))
                else:
                    step = step.rpartition("/")[0]
            elif stat.S_ISDIR(status.st_mode):
                flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
                here, at_top = _replaced(here, os.open(name, flags, dir_fd=here)), of_entry
            elif todo:
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), step)
    finally:
        os.close(here)


def make(path: Path) -> None:
    """Make a directory, and those above it, that only root and this user can change. Raises OSError.

    It is checked once more when it is there: where anyone may make entries, another may have been quicker.
    """
    check(path)
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    check(path)


def _untrusted(path: Path, step: str, why: str) -> UntrustedPath:
    which, name = "it" if step == str(path) else step, shlex.quote(step)
    return UntrustedPath(
        f"{path}: {which} {why}, so another user can replace what corelane reads there; use another "
        f"directory, or make it yours: chown {os.geteuid()} {name}; chmod go-w {name}"
    )


def _replaced(old: int, new: int) -> int:
    os.close(old)
    return new


def _check_one(path: Path, step: str, status: os.stat_result, *, last: bool, at_top: bool) -> bool:
    """Return whether what lies in a directory may be the machine's root's, if the directory may be."""
    if not is_own(status.st_uid) and not (at_top and is_outside(status.st_uid)):
        raise _untrusted(path, step, f"belongs to user {status.st_uid}")
    is_link = stat.S_ISLNK(status.st_mode)
    # In a sticky directory others cannot replace an entry that is ours.
    in_sticky = bool(status.st_mode & stat.S_ISVTX) and not last
    if not is_link and not in_sticky and _others_write(step, status):
        raise _untrusted(path, step, f"may be written by other users (mode {status.st_mode & 0o7777:04o})")
    return at_top and _is_at_top(status)


def _is_at_top(directory: os.stat_result) -> bool:
    return is_outside(directory.st_uid) and not directory.st_mode & stat.S_ISVTX


def is_own(uid: int) -> bool:
    """Whether a file of this user can be changed by this process's user and root alone."""
    return uid in (0, os.geteuid())


def is_outside(uid: int) -> bool:
    """Whether an id stands for all users without one in this user namespace, as the machine's root."""
    return uid == _overflow_uid() and not any(first <= uid < first + count for first, count in _mapped())


def _others_write(step: str, status: os.stat_result) -> bool:
    """Whether others may write; with an ACL, the group's bits are the most that any entry of it allows."""
    if status.st_mode & stat.S_IWOTH:
        return True
    if not status.st_mode & stat.S_IWGRP:
        return False
    user, group = status.st_uid, status.st_gid
    return is_outside(user) or _has_acl(step) or not _is_private_group(group, user)


def _has_acl(step: str) -> bool:
    try:
        return bool(os.getxattr(step, "system.posix_acl_access", follow_symlinks=False))
    except OSError as error:
        return error.errno not in (errno.ENODATA, errno.EOPNOTSUPP)


@lru_cache(maxsize=64)
def _is_private_group(gid: int, uid: int) -> bool:
    """Whether a group is that of one user alone, of the same name, as many distributions make them."""
    try:
        user, group = pwd.getpwuid(uid), grp.getgrgid(gid)
    except KeyError:
        return False
    return user.pw_gid == gid and user.pw_name == group.gr_name and set(group.gr_mem) <= {user.pw_name}


@lru_cache(maxsize=1)
def _overflow_uid() -> int:
    """Return the user as which those are shown that a user namespace does not have, as the host's root."""
    try:
        return int(Path("/proc/sys/kernel/overflowuid").read_text())
    except (OSError, ValueError):
        return 65534


@lru_cache(maxsize=1)
def _mapped() -> tuple[tuple[int, int], ...]:
    """Return the ranges of user ids in this user namespace, by first and number (user_namespaces(7))."""
    try:
        lines = Path("/proc/self/uid_map").read_text().splitlines()
    except OSError:
        return ((0, 1 << 32),)
    return tuple((int(first), int(count)) for first, _, count in map(str.split, lines))


def read(path: Path) -> bytes:
    """Read a regular file of root or of this user, in a directory that was checked. Raises OSError.

    Nothing else is waited for (a FIFO) or followed (a symbolic link).
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    handle = os.open(path, flags)
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        if not is_own(status.st_uid):
            raise _untrusted(path, str(path), f"belongs to user {status.st_uid}")
        return read_all(handle)
    finally:
        os.close(handle)
