"""Calls a function in a user namespace, as `unshare --user` makes it, in a child of this process."""

from __future__ import annotations

import ctypes
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from corelane.kernel import ownership

_NEW_USER = 0x10000000


def call(function: Callable[[], Any], user: int, *, mapped: bool = True) -> Any:
    """Return what a function returns, or name and text of what it raises, as this user.

    The user is 0 there, or without `mapped` one that has no id.

    Skips the test where no user namespace can be made.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            answer = pickle.dumps(_in_child(function, user, mapped))
        except BaseException as error:
            answer = pickle.dumps(RuntimeError(repr(error)))
        os.write(writer, answer)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        data = pipe.read()
    os.waitpid(child, 0)
    answer = pickle.loads(data)
    if answer is None:
        pytest.skip("needs user namespaces")
    return answer[0]


def _in_child(function: Callable[[], Any], user: int, mapped: bool) -> tuple[Any] | None:
    if os.geteuid() != user:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
        ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE: else /proc/self is root's
    group = os.getegid()
    if ctypes.CDLL(None).unshare(_NEW_USER):
        return None
    if mapped:
        for file, text in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1")):
            Path("/proc/self", file).write_text(text)
    ownership._mapped.cache_clear()
    ownership._overflow_uid.cache_clear()
    try:
        return (function(),)
    except Exception as error:
        return (f"{type(error).__name__}: {error}",)
