"""The ledger's file."""

import asyncio
import os
import resource
import signal
import tempfile
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from corelane.agent import saved_state
from corelane.agent.reporting import AgentReporter
from corelane.cpuset import CPUSet
from corelane.machine.spec import parse_spec
from corelane.node import admit
from corelane.node.config import NodeConfig
from corelane.node.entries import Phase
from corelane.node.ledger import mark, new, release
from corelane.workload.request import QOSClass
from support.agent_world import APP, plan

MACHINE = parse_spec("core:4 smt:1")
CONFIG = NodeConfig()


def filled():
    return admit(new(MACHINE, CONFIG), plan("u", ("a", APP, 2000)).request)[0]


def test_without_a_file_the_ledger_is_empty(tmp_path):
    loaded = saved_state.load_ledger(tmp_path / "ledger.json", MACHINE, CONFIG)
    assert (dict(loaded.ledger.entries), loaded.problems, loaded.backup) == ({}, (), None)


def test_a_saved_ledger_is_loaded_and_has_mode_0600(tmp_path):
    path = tmp_path / "ledger.json"
    saved_state.save_ledger(path, filled())
    assert saved_state.load_ledger(path, MACHINE, CONFIG).ledger.entries == filled().entries
    assert path.stat().st_mode & 0o777 == 0o600


def test_entries_that_do_not_fit_the_machine_are_problems(tmp_path):
    path = tmp_path / "ledger.json"
    saved_state.save_ledger(path, filled())
    loaded = saved_state.load_ledger(path, MACHINE.restricted(0b0011), CONFIG)
    assert loaded.ledger.entries["u", "a"].cpus == CPUSet([1])
    assert loaded.problems
    assert "2" in loaded.problems[0]


@pytest.mark.parametrize("content", [b"", b"\x00\xff", b'{"kind": "corelane-ledger"}', b"[]"])
def test_a_corrupt_file_is_renamed_each_time_to_another_name(tmp_path, content):
    path = tmp_path / "ledger.json"
    for number in (1, 2):
        path.write_bytes(content)
        loaded = saved_state.load_ledger(path, MACHINE, CONFIG)
        assert loaded.backup == tmp_path / f"ledger.json.damaged-{number}"
        assert loaded.backup.read_bytes() == content
        assert loaded.damage
        assert not path.exists()


def test_a_directory_in_place_of_the_ledger_is_renamed(tmp_path):
    path = tmp_path / "ledger.json"
    path.mkdir()
    (path / "kept").write_text("x")
    loaded = saved_state.load_ledger(path, MACHINE, CONFIG)
    assert "is a directory" in loaded.damage
    assert loaded.backup is not None
    assert (loaded.backup / "kept").read_text() == "x"
    saved_state.save_ledger(path, filled())
    assert saved_state.load_ledger(path, MACHINE, CONFIG).ledger.entries == filled().entries


def test_a_file_of_another_version_stays_and_is_not_replaced(tmp_path):
    path = tmp_path / "ledger.json"
    saved_state.save_ledger(path, filled())
    newer = path.read_bytes().replace(b'"version": 1', b'"version": 2')
    path.write_bytes(newer)
    loaded = saved_state.load_ledger(path, MACHINE, CONFIG)
    assert (dict(loaded.ledger.entries), loaded.damage, loaded.backup) == ({}, "", None)
    assert loaded.foreign.startswith("ledger of version 2; this corelane reads and writes version 1: start")
    files = saved_state.StateFiles(tmp_path, CONFIG, MACHINE, AgentReporter())
    assert asyncio.run(files.save_ledger(filled())).startswith(f"{path}: ledger of version 2; ")
    assert [event.reason for event in files.startup_events()] == ["LedgerUnwritable"]
    assert path.read_bytes() == newer
    assert [file.name for file in tmp_path.iterdir()] == ["ledger.json"]


def test_a_changed_byte_fails_the_checksum(tmp_path):
    path = tmp_path / "ledger.json"
    saved_state.save_ledger(path, filled())
    path.write_text(path.read_text().replace('"1-2"', '"1-3"'))
    assert "checksum" in saved_state.load_ledger(path, MACHINE, CONFIG).damage


def test_an_unreadable_file_raises_permission_error(tmp_path):
    path = tmp_path / "ledger.json"
    saved_state.save_ledger(path, filled())
    path.chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("this user may read everything")
    with pytest.raises(PermissionError):
        saved_state.load_ledger(path, MACHINE, CONFIG)


def test_requests_beyond_a_smaller_machine_are_reported_and_kept(tmp_path):
    whole = parse_spec("socket:1 core:4 smt:1")
    state = new(whole, NodeConfig())
    for number in range(3):
        shared = plan(f"u{number}", ("app", APP, 900), qos=QOSClass.BURSTABLE)
        state, decision = admit(state, shared.request)
        assert decision.admitted
    saved_state.save_ledger(tmp_path / saved_state.LEDGER_FILE, state)
    files = saved_state.StateFiles(tmp_path, NodeConfig(), whole.restricted(0b11), AgentReporter())
    assert files.ledger.pods == state.pods
    text = saved_state.excess_requests(files.ledger)
    assert "2700m" in text
    assert "2000m are allocatable" in text
    assert saved_state.excess_requests(state) == ""


def pods(number):
    return plan(f"u{number}", ("app", APP, 1000), ("side", APP, 100)).request


STEPS = st.lists(st.tuples(st.sampled_from(["admit", "release", "mark"]), st.integers(0, 5)), max_size=25)


def history(steps):
    """States of a ledger as it changes."""
    state = new(MACHINE_OF_TEN, POOLS)
    yield state
    for what, number in steps:
        uid = f"u{number}"
        if what == "admit" and uid not in state.pods:
            state = admit(state, pods(number))[0]
        elif what == "release":
            state = release(state, uid)
        elif uid in state.pods:
            state = mark(state, uid, "app", Phase.APPLIED)
        yield state


MACHINE_OF_TEN = parse_spec("core:10 smt:1")
POOLS = NodeConfig(policy="pools")


def loaded(path):
    found = ledger_loaded(path)
    assert found.damage == "" and found.problems == ()
    return found.ledger


def ledger_loaded(path):
    return saved_state.load_ledger(path, MACHINE_OF_TEN, POOLS)


@example([("admit", 0), ("admit", 1), ("release", 0), ("mark", 1), ("admit", 0)])
@given(STEPS)
@settings(max_examples=40, deadline=None)
def test_after_each_change_the_file_is_the_ledger_wherever_the_process_is_killed(steps):
    """A kill leaves the file as it was, a part of the line in it, or the whole line."""
    with tempfile.TemporaryDirectory() as directory:
        path, killed = Path(directory) / "ledger.json", Path(directory) / "killed.json"
        file, before = saved_state.ChangedFile(path), None
        for state in history(steps):
            content = path.read_bytes() if path.exists() else b""
            file.save(state)
            assert loaded(path) == state
            line = path.read_bytes().removeprefix(content)
            for end in range(0, len(line), 37) if content else ():
                killed.write_bytes(content + line[:end])
                assert loaded(killed) == before
            before = state


def test_changes_are_appended_and_the_file_is_written_anew_now_and_then(tmp_path):
    path = tmp_path / "ledger.json"
    file, inodes = saved_state.ChangedFile(path), []
    steps = [("admit", 0)] + [("mark", 0), ("release", 0), ("admit", 0)] * 150
    for state in history(steps):
        file.save(state)
        inodes.append(path.stat().st_ino)
    assert 2 <= len(set(inodes)) <= 4
    assert loaded(path) == state
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "change",
    [
        lambda path: path.unlink(),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(path.read_bytes().replace(b"1", b"2")),
        lambda path: path.rename(path.with_name("moved")),
        lambda path: os.truncate(path, 20),
    ],
)
def test_a_file_that_others_changed_is_written_whole(tmp_path, change):
    path = tmp_path / "ledger.json"
    file = saved_state.ChangedFile(path)
    *states, last = history([("admit", number) for number in range(3)])
    for state in states:
        file.save(state)
    change(path)
    file.save(last)
    assert loaded(path) == last


def test_a_damaged_line_is_reported_and_the_file_renamed(tmp_path):
    path = tmp_path / "ledger.json"
    file = saved_state.ChangedFile(path)
    for state in history([("admit", number) for number in range(3)]):
        file.save(state)
    content = path.read_bytes()
    path.write_bytes(content[:-40] + bytes([content[-40] ^ 1]) + content[-39:])
    found = ledger_loaded(path)
    assert "line 3 of changes" in found.damage
    assert found.backup == tmp_path / "ledger.json.damaged-1"


def test_a_full_disk_leaves_the_file_as_it_was(tmp_path):
    path = tmp_path / "ledger.json"
    file = saved_state.ChangedFile(path)
    first, second, third = list(history([("admit", 0), ("admit", 1)]))
    file.save(first)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 100, limits[1]))
    try:
        with pytest.raises(OSError, match=r"ledger\.json"):
            file.save(second)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert loaded(path) == first
    file.save(third)
    assert loaded(path) == third


@pytest.mark.parametrize("saves", [1, 2, 40, 200])
def test_what_was_saved_survives_a_kill(tmp_path, saves):
    path = tmp_path / "ledger.json"
    states = list(history([("admit", 0), ("admit", 1)] + [("mark", 0), ("release", 0), ("admit", 0)] * 20))
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            file = saved_state.ChangedFile(path)
            for number in count():
                file.save(replace(states[number % len(states)], generation=number))
                os.write(write, number.to_bytes(4, "big"))
        finally:
            os._exit(1)
    os.close(write)
    with os.fdopen(read, "rb") as answers:
        try:
            known = answers.read(4 * saves)
        finally:
            os.kill(child, signal.SIGKILL)
            status = os.waitpid(child, 0)[1]
        last = int.from_bytes((known + answers.read())[-4:], "big")
    assert os.WTERMSIG(status) == signal.SIGKILL, "it ended before"
    assert last >= saves - 1
    found = loaded(path)
    assert found.generation in (last, last + 1)
    assert found.entries == states[found.generation % len(states)].entries
