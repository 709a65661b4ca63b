"""The ledger's file."""

import asyncio
import os

import pytest

from corelane.agent import saved_state
from corelane.agent.reporting import AgentReporter
from corelane.cpuset import CPUSet
from corelane.machine.spec import parse_spec
from corelane.node import NodeConfig, admit, new
from corelane.workload import QOSClass
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
