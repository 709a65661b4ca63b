"""Paths that another user can change are refused before anything in them is believed."""

import grp
import os
import pwd
import struct
from pathlib import Path

import pytest

from corelane.kernel import ownership
from corelane.kernel.ownership import UntrustedPath

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a directory away")
NOBODY = 65534


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "above" / "data"
    path.mkdir(parents=True)
    return path


def test_directories_of_ours_below_a_sticky_one_are_fine(data):
    ownership.check(data)
    ownership.check(data / "missing" / "below")
    data.parent.chmod(0o1777)
    ownership.check(data)


@pytest.mark.parametrize("which", ["data", "above"])
def test_directory_that_everyone_may_write_is_refused(data, which):
    path = data if which == "data" else data.parent
    path.chmod(0o777)
    with pytest.raises(UntrustedPath, match=r"may be written by other users \(mode 0777\).*chmod go-w"):
        ownership.check(data)


def test_sticky_directory_is_refused_as_the_data_directory_itself(data):
    """Anyone may make `nodes` in it first."""
    data.chmod(0o1777)
    with pytest.raises(UntrustedPath):
        ownership.check(data)


def test_group_that_is_one_users_own_may_write_and_others_may_not(data, monkeypatch):
    data.chmod(0o770)
    ownership._is_private_group.cache_clear()
    user = pwd.getpwuid(os.geteuid())
    for members, primary, name, private in (
        ([], data.stat().st_gid, user.pw_name, True),
        ([user.pw_name], data.stat().st_gid, user.pw_name, True),
        ([user.pw_name, "other"], data.stat().st_gid, user.pw_name, False),
        ([], data.stat().st_gid, "users", False),
        ([], data.stat().st_gid + 1, user.pw_name, False),
    ):
        entry = pwd.struct_passwd((user.pw_name, "x", user.pw_uid, primary, "", "/", "/bin/sh"))
        monkeypatch.setattr(pwd, "getpwuid", lambda _, entry=entry: entry)
        group = grp.struct_group((name, "x", data.stat().st_gid, members))
        monkeypatch.setattr(grp, "getgrgid", lambda _, group=group: group)
        ownership._is_private_group.cache_clear()
        if private:
            ownership.check(data)
        else:
            with pytest.raises(UntrustedPath):
                ownership.check(data)
    ownership._is_private_group.cache_clear()


@pytest.mark.parametrize(("allowed", "safe"), [(7, False), (5, True)])
def test_user_that_an_access_list_lets_write_is_another_one_despite_a_private_group(
    data, monkeypatch, allowed, safe
):
    """The group's bits are then the list's mask, whatever the group is; see acl(5)."""
    whole, named, group, mask, other = 0x01, 0x02, 0x04, 0x10, 0x20
    entries = ((whole, 7, -1), (named, 7, NOBODY), (group, 5, -1), (mask, allowed, -1), (other, 5, -1))
    packed = (struct.pack("<HHi", *entry) for entry in entries)
    try:
        os.setxattr(data, "system.posix_acl_access", struct.pack("<I", 2) + b"".join(packed))
    except OSError as error:
        pytest.skip(f"the file system has no access lists: {error}")
    monkeypatch.setattr(ownership, "_is_private_group", lambda gid, uid: True)
    if safe:
        ownership.check(data)
    else:
        with pytest.raises(UntrustedPath, match=r"may be written by other users \(mode 0775\).*chmod go-w"):
            ownership.check(data)
        data.chmod(0o755)
        ownership.check(data)


@needs_root
@pytest.mark.parametrize("which", ["data", "above"])
def test_directory_of_another_user_on_the_way_is_refused(data, which):
    os.chown(data if which == "data" else data.parent, NOBODY, NOBODY)
    with pytest.raises(UntrustedPath, match=f"belongs to user {NOBODY}"):
        ownership.check(data / "below")


@needs_root
def test_link_of_ours_is_followed_and_one_of_another_user_is_not(data, tmp_path):
    link = tmp_path / "link"
    link.symlink_to("above")
    ownership.check(link / "data")
    os.chown(link, NOBODY, NOBODY, follow_symlinks=False)
    with pytest.raises(UntrustedPath):
        ownership.check(link / "data")


def test_what_a_link_leads_to_is_checked_as_well(data, tmp_path):
    elsewhere = tmp_path / "open" / "inner"
    elsewhere.mkdir(parents=True)
    elsewhere.parent.chmod(0o777)
    (data / "nodes").symlink_to(f"../../{elsewhere.parent.name}/inner")
    with pytest.raises(UntrustedPath):
        ownership.check(data / "nodes" / "here")


def test_links_in_a_circle_end_in_an_error(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match="symbolic links"):
        ownership.check(tmp_path / "a")


def test_made_directory_is_checked_again(tmp_path, monkeypatch):
    """Where anyone may make entries, another may be quicker."""
    made = Path.mkdir

    def quicker(self, *args, **more):
        made(self, *args, **more)
        self.chmod(0o777)

    monkeypatch.setattr(Path, "mkdir", quicker)
    with pytest.raises(UntrustedPath):
        ownership.make(tmp_path / "data")


def test_regular_files_are_read_and_nothing_else_is_waited_for_or_followed(tmp_path):
    file, fifo, link = tmp_path / "file", tmp_path / "fifo", tmp_path / "link"
    file.write_bytes(b"content")
    os.mkfifo(fifo)
    link.symlink_to(file)
    assert ownership.read(file) == b"content"
    for path in (fifo, link, tmp_path):
        with pytest.raises(OSError):
            ownership.read(path)


@needs_root
def test_file_of_another_user_is_not_read(tmp_path):
    (tmp_path / "file").write_bytes(b"content")
    os.chown(tmp_path / "file", NOBODY, NOBODY)
    with pytest.raises(UntrustedPath):
        ownership.read(tmp_path / "file")
