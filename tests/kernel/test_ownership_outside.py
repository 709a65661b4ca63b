"""In a user namespace, files of users outside are believed to be root's at the top of a path alone."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from corelane.embedded.containers import instances
from corelane.kernel import ownership
from support import user_namespace

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be two other users")
USER, OTHER = 12003, 12004
OVERFLOW = 65534


@pytest.fixture
def shared() -> Iterator[Path]:
    """A directory of the user, in /tmp, where pytest's own are closed to others."""
    path = Path(tempfile.mkdtemp(prefix="corelane-", dir="/tmp"))
    os.chown(path, USER, USER)
    yield path
    shutil.rmtree(path)


def given(path: Path, user: int) -> Path:
    path.mkdir()
    os.chown(path, user, user)
    return path


@needs_root
def test_directory_of_the_user_below_those_of_the_machine_is_fine(shared: Path) -> None:
    assert user_namespace.call(partial(ownership.check, shared), USER) is None
    assert user_namespace.call(partial(ownership.make, shared / "data"), USER) is None
    assert (shared / "data").stat().st_uid == USER


@needs_root
@pytest.mark.parametrize("owner", [OTHER, 0])
def test_directory_of_a_user_outside_below_one_of_ours_is_refused(shared: Path, owner: int) -> None:
    data = given(given(shared / "above", owner) / "data", USER)
    answer = user_namespace.call(partial(ownership.check, data), USER)
    assert answer.startswith(f"UntrustedPath: {data}: {data.parent} belongs to user {OVERFLOW}")


@needs_root
def test_directory_of_a_user_outside_in_a_sticky_one_is_refused(shared: Path) -> None:
    data = given(shared / "data", USER)
    os.chown(shared, OTHER, OTHER)
    assert user_namespace.call(partial(ownership.check, data), USER).startswith("UntrustedPath")
    link = shared.with_name(f"{shared.name}-link")
    link.symlink_to("/")
    try:
        os.chown(link, OTHER, OTHER, follow_symlinks=False)
        assert user_namespace.call(partial(ownership.check, link / "tmp"), USER).startswith("UntrustedPath")
    finally:
        link.unlink()


@needs_root
def test_file_of_a_user_outside_is_not_read(shared: Path) -> None:
    file = shared / "instance"
    file.write_text("theirs")
    file.chmod(0o644)
    os.chown(file, OTHER, OTHER)
    assert user_namespace.call(partial(ownership.read, file), USER).startswith("UntrustedPath")
    os.chown(file, USER, USER)
    assert user_namespace.call(partial(ownership.read, file), USER) == b"theirs"


@needs_root
def test_root_in_a_namespace_of_its_own_believes_no_other_user(shared: Path) -> None:
    assert user_namespace.call(partial(ownership.check, shared), 0).startswith("UntrustedPath")


@needs_root
def test_user_without_an_id_is_refused_with_the_remedy(shared: Path) -> None:
    """Everyone's files, and processes, look like its own."""
    answer = user_namespace.call(partial(ownership.check, shared), USER, mapped=False)
    assert answer.startswith(f"UntrustedPath: {shared}: ")
    assert "has no id in its user namespace" in answer
    assert "unshare --map-root-user" in answer


@needs_root
def test_users_outside_are_called_so_and_nobody_is_one_on_the_machine_itself() -> None:
    assert not ownership.is_outside(OVERFLOW)
    assert instances.user_title(OVERFLOW) == f"user {OVERFLOW}"
    titles = user_namespace.call(partial(_titles, OVERFLOW, 0), USER)
    assert titles == ["a user outside this user namespace", "root"]


def _titles(*users: int) -> list[str]:
    return list(map(instances.user_title, users))
