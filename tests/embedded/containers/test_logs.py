"""Logs: how the shim writes them, and how they are read while they grow and are moved aside."""

import asyncio
import re
import shutil
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corelane.embedded.containers import logs
from corelane.embedded.containers.shim import supervise as shim_log
from support.containers import PYTHON, ended, output, shell, spec

RECORD = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z) (stdout|stderr) ([FP]) (.*)", re.DOTALL)


@pytest.fixture
def mode():
    return "off"


def run(main):
    return asyncio.run(asyncio.wait_for(main, 180))


async def read(path, **choice):
    return b"".join([piece async for piece in logs.stream(path, lambda: True, logs.LogSelection(**choice))])


@pytest.mark.parametrize("lines", [None, 3])
def test_a_log_that_is_missing_or_a_directory_is_empty(tmp_path, lines):
    (tmp_path / "0.log").mkdir()
    for name in ("0.log", "1.log"):
        assert run(read(tmp_path / name, tail_lines=lines)) == b""


def writer(path, max_bytes=1 << 20, max_files=5):
    return shim_log.Log(str(path), max_bytes, max_files)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.binary(max_size=40), max_size=20))
def test_what_a_stream_says_is_read_back_byte_for_byte(tmp_path_factory, chunks):
    path = tmp_path_factory.mktemp("log") / "0.log"
    log = writer(path)
    for chunk in chunks:
        log.feed("stdout", chunk)
    log.finish()
    assert run(read(path)) == b"".join(chunks)


@pytest.mark.parametrize("size", [16383, 16384, 16385, 40000, 65536])
def test_a_long_line_is_written_in_parts_and_read_as_one(tmp_path, size):
    path = tmp_path / "0.log"
    text = b"x" * size + b"\nshort\n" + b"y" * size
    log = writer(path)
    for start in range(0, len(text), 10000):
        log.feed("stdout", text[start : start + 10000])
    log.finish()
    assert run(read(path)) == text
    assert run(read(path, tail_lines=2)) == b"short\n" + b"y" * size
    records = [RECORD.fullmatch(line) for line in path.read_bytes().splitlines()]
    assert all(records)
    assert max(len(record[4]) for record in records) <= 16384
    assert run(read(path, timestamps=True)).count(b"Z ") == 3, "one time for each line, not for each part"


def test_streams_do_not_mix_within_a_line(tmp_path):
    path = tmp_path / "0.log"
    log = writer(path)
    for stream, chunk in (
        ("stdout", b"one "),
        ("stderr", b"bad "),
        ("stdout", b"line\n"),
        ("stderr", b"thing\n"),
    ):
        log.feed(stream, chunk)
    assert run(read(path)) == b"one line\nbad thing\n"
    assert [RECORD.fullmatch(line)[2] for line in path.read_bytes().splitlines()] == [b"stdout", b"stderr"]


LINES = [f"line {number}" for number in range(60)]


def rotated(tmp_path, max_files=5):
    """A log of 60 lines, the older of them moved aside."""
    path = tmp_path / "0.log"
    log = writer(path, max_bytes=600, max_files=max_files)
    for line in LINES:
        log.feed("stdout", line.encode() + b"\n")
    return path


def test_a_log_that_has_grown_is_moved_aside_and_the_oldest_is_dropped(tmp_path):
    path = rotated(tmp_path, max_files=3)
    files = sorted(tmp_path.iterdir())
    assert files == [path, tmp_path / "0.log.1", tmp_path / "0.log.2"]
    assert all(file.stat().st_size < 700 for file in files)
    text = run(read(path)).decode().splitlines()
    assert text == LINES[-len(text) :]
    assert 20 < len(text) < 60


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 300), min_size=1, max_size=30), st.integers(0, 35), st.integers(1, 2000))
def test_any_tail_of_any_log_is_its_last_lines(tmp_path_factory, sizes, tail, max_bytes):
    path = tmp_path_factory.mktemp("log") / "0.log"
    log = writer(path, max_bytes=max_bytes, max_files=50)
    lines = [str(place).encode() + b"-" * size + b"\n" for place, size in enumerate(sizes)]
    for line in lines:
        log.feed("stdout", line)
    assert run(read(path, tail_lines=tail)) == b"".join(lines[-tail:] if tail else [])


def test_lines_since_a_moment_with_their_times_and_no_more_than_so_many_bytes(tmp_path):
    path = tmp_path / "0.log"
    times = [datetime(2026, 1, 2, 3, 4, second, tzinfo=UTC) for second in (5, 6, 7)]
    path.write_text("".join(f"{at:%Y-%m-%dT%H:%M:%S}.000000001Z stdout F at {at.second}\n" for at in times))
    assert run(read(path, since=times[1].timestamp())) == b"at 6\nat 7\n"
    assert run(read(path, since=times[1].timestamp() + 0.5)) == b"at 7\n"
    assert (
        run(read(path, since=times[2].timestamp(), timestamps=True))
        == b"2026-01-02T03:04:07.000000001Z at 7\n"
    )
    assert run(read(path, limit_bytes=7)) == b"at 5\nat"
    assert run(read(path, limit_bytes=0)) == b""
    assert run(read(path, tail_lines=2, since=times[2].timestamp())) == b"at 7\n"


def test_a_line_of_somebody_elses_making_is_shown_as_it_is(tmp_path):
    path = tmp_path / "0.log"
    path.write_bytes(
        b"not a record\n2026-01-02T03:04:05.000000001Z stdout F \n2026-01-02T03:04:05.000000001Z stdout F\n"
    )
    assert run(read(path)) == b"not a record\n\n\n"


def test_a_follower_sees_every_line_once_while_the_log_is_moved_aside_under_it(tmp_path):
    path = tmp_path / "0.log"
    lines = [f"line {number}\n".encode() for number in range(400)]
    done = False

    async def write():
        nonlocal done
        log = writer(path, max_bytes=2000, max_files=50)
        for place, line in enumerate(lines):
            log.feed("stdout", line)
            if place % 7 == 0:
                await asyncio.sleep(0.002)
        done = True

    async def main():
        writing = asyncio.create_task(write())
        seen = [piece async for piece in logs.stream(path, lambda: done, logs.LogSelection())]
        await writing
        return b"".join(seen)

    assert run(main()) == b"".join(lines)


class MovedAsideAfter:
    """A file that is added to and moved aside just after it was read to its end."""

    def __init__(self, file, happen):
        self.file, self.happen = file, happen

    def read(self, size):
        data = self.file.read(size)
        if not data and self.happen:
            self.happen()
            self.happen = None
        return data

    def __getattr__(self, name):
        return getattr(self.file, name)


def test_what_is_written_between_a_look_at_the_end_and_the_move_is_not_missed(tmp_path):
    path = tmp_path / "0.log"
    log = writer(path, max_bytes=100)
    log.feed("stdout", b"one\n")
    reader = logs._Reader(path, logs.LogSelection())

    def happen():
        log.feed("stdout", b"two" * 30 + b"\n")
        log.feed("stdout", b"three\n")

    reader.file = MovedAsideAfter(reader.file, happen)
    seen = b"".join(reader.read() for _ in range(5))
    reader.close()
    assert seen == b"one\n" + b"two" * 30 + b"\nthree\n"
    assert (tmp_path / "0.log.1").exists()


def test_a_full_disk_loses_lines_but_not_the_container(tmp_path, monkeypatch):
    log = writer(tmp_path / "0.log")

    def full(fd, data):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(shim_log.os, "write", full)
        log.feed("stdout", b"lost\n")
    log.feed("stdout", b"kept\n")
    assert run(read(tmp_path / "0.log")) == b"kept\n"


@pytest.mark.parametrize("deleted", ["0.log", "web", "pod", "logs"])
def test_a_deleted_log_goes_on_in_a_new_file(tmp_path, deleted):
    path = tmp_path / "logs" / "pod" / "web" / "0.log"
    path.parent.mkdir(parents=True)
    log = writer(path)
    log.feed("stdout", b"before\n")
    victim = next(one for one in (path, *path.parents) if one.name == deleted)
    shutil.rmtree(victim) if victim.is_dir() else victim.unlink()
    log.feed("stdout", b"after\n")
    log.feed("stdout", b"more\n")
    assert run(read(path)) == b"after\nmore\n"


def test_a_deleted_data_directory_is_not_made_again_for_a_log(tmp_path):
    path = tmp_path / "containers" / "logs" / "pod" / "web" / "0.log"
    path.parent.mkdir(parents=True)
    log = writer(path)
    shutil.rmtree(tmp_path / "containers")
    log.feed("stdout", b"after\n")
    assert list(tmp_path.iterdir()) == []


def test_a_log_that_cannot_be_moved_aside_goes_on_growing(tmp_path, monkeypatch):
    log = writer(tmp_path / "0.log", max_bytes=100)

    def refuse(old, new):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(shim_log.os, "rename", refuse)
    for line in LINES:
        log.feed("stdout", line.encode() + b"\n")
    kept = run(read(tmp_path / "0.log")).decode().splitlines()
    assert kept == LINES


async def test_a_container_is_followed_until_it_ends(runtime, tmp_path):
    script = "for i in 1 2 3; do echo $i; until [ -e $GO$i ]; do sleep 0.02; done; done; printf end >&2"
    found = await runtime.start(shell(script, env=(("GO", str(tmp_path / "go")),)))
    follow = runtime.logs(found.id, follow=True)
    for number in (1, 2, 3):
        assert await anext(follow) == b"%d\n" % number, "it comes as it is written"
        (tmp_path / f"go{number}").touch()
    assert b"".join([piece async for piece in follow]) == b"end"
    await ended(runtime, found.id)
    assert await output(runtime, found.id, tail_lines=2) == "3\nend"


async def test_a_follower_who_loses_interest_leaves_nothing_open(runtime):
    found = await runtime.start(shell("echo hello; exec sleep 60"))
    stream = runtime.logs(found.id, follow=True)
    assert await anext(stream) == b"hello\n"
    await stream.aclose()
    assert await output(runtime, found.id) == "hello\n", "without following it does not wait"


async def test_a_container_that_writes_much_is_logged_whole_and_its_log_kept_in_bounds(runtime, tmp_path):
    code = "import sys\nfor n in range(40000): sys.stdout.write('%06d ' % n + 'x' * 60 + '\\n')"
    runtime.log_bytes, runtime.log_files = 1 << 20, 3
    found = await runtime.start(spec(*PYTHON, code))
    await ended(runtime, found.id, 30)
    lines = (await output(runtime, found.id)).splitlines()
    assert int(lines[-1].split()[0]) == 39999
    assert [int(line.split()[0]) for line in lines] == list(range(40000 - len(lines), 40000))
    directory = tmp_path / "state/logs/default_web-0_0a1b/main"
    assert len(list(directory.iterdir())) == 3
    assert sum(file.stat().st_size for file in directory.iterdir()) < 4 << 20


async def test_a_container_that_closes_its_output_is_still_waited_for(runtime):
    found = await runtime.start(shell("exec >&- 2>&-; sleep 0.2; exit 3"))
    assert (await ended(runtime, found.id)).exit_code == 3


async def test_a_log_goes_where_it_was_asked_to(runtime, tmp_path):
    path = tmp_path / "elsewhere" / "my.log"
    found = await runtime.start(shell("echo hello", log_path=path))
    await ended(runtime, found.id)
    assert path.read_text().endswith(" stdout F hello\n")
    assert await output(runtime, found.id) == "hello\n"
