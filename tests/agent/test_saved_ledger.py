"""The ledger's file."""

import os

import pytest

from corelane.agent import saved_state
from corelane.cpuset import CPUSet
from corelane.machine.spec import parse_spec
from corelane.node import NodeConfig, admit, new
from support.agent_world import APP, plan

MACHINE = parse_spec("core:4 smt:1")
CONFIG = NodeConfig()


def filled():
    return admit(new(MACHINE, CONFIG), plan("u", ("a", APP, 2000)).request)[0]


def test_without_a_file_the_ledger_is_empty(tmp_path):
    loaded = saved_state.load_ledger(tmp_path / "ledger.json", MACHINE, CONFIG)
    assert (dict(loaded.ledger.entries), loaded.problems, loaded.backup) == ({}, (), None)


def test_what_is_saved_is_loaded_and_only_ours_to_read(tmp_path):
    path = tmp_path / "ledger.json"
    saved_state.save_ledger(path, filled())
    assert saved_state.load_ledger(path, MACHINE, CONFIG).ledger.entries == filled().entries
    assert path.stat().st_mode & 0o777 == 0o600


def test_what_does_not_fit_the_machine_any_more_is_said(tmp_path):
    path = tmp_path / "ledger.json"
    saved_state.save_ledger(path, filled())
    loaded = saved_state.load_ledger(path, MACHINE.restricted(0b0011), CONFIG)
    assert loaded.ledger.entries["u", "a"].cpus == CPUSet([1])
    assert loaded.problems
    assert "2" in loaded.problems[0]


@pytest.mark.parametrize("content", [b"", b"\x00\xff", b'{"kind": "corelane-ledger"}', b"[]"])
def test_a_damaged_file_is_put_aside_whole_each_time_under_another_name(tmp_path, content):
    path = tmp_path / "ledger.json"
    for number in (1, 2):
        path.write_bytes(content)
        loaded = saved_state.load_ledger(path, MACHINE, CONFIG)
        assert loaded.backup == tmp_path / f"ledger.json.damaged-{number}"
        assert loaded.backup.read_bytes() == content
        assert loaded.damage
        assert not path.exists()


def test_a_flipped_bit_is_noticed(tmp_path):
    path = tmp_path / "ledger.json"
    saved_state.save_ledger(path, filled())
    path.write_text(path.read_text().replace('"1-2"', '"1-3"'))
    assert "checksum" in saved_state.load_ledger(path, MACHINE, CONFIG).damage


def test_a_file_that_may_not_be_read_is_no_empty_ledger(tmp_path):
    path = tmp_path / "ledger.json"
    saved_state.save_ledger(path, filled())
    path.chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("this user may read everything")
    with pytest.raises(PermissionError):
        saved_state.load_ledger(path, MACHINE, CONFIG)
