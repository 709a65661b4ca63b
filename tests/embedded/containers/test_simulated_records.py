"""The file of simulated containers, against a dict: whatever is done to it, a reader has the last state."""

import errno
import os
import tempfile
from pathlib import Path

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from corelane.embedded.containers import simulated
from corelane.embedded.containers.simulated import Row, SimulatedRecords, SimulationStateError
from corelane.runtime.base import RuntimeStatus


def row(name, cpus):
    status = RuntimeStatus(id=name, pod_uid="u", namespace="n", pod="p", name="c", attempt=0, state="running")
    return Row(status, cpus)


names = st.sampled_from("abc")
steps = st.lists(
    st.tuples(st.just("put"), names, st.sampled_from(["0", "1-3"]))
    | st.tuples(st.sampled_from(["remove", "reopen", "delete", "torn"]), names, st.just("")),
    max_size=40,
)


@example([("put", "a", "0"), ("torn", "a", ""), ("reopen", "a", ""), ("remove", "a", "")])
@example(
    [("put", "a", "0"), ("put", "b", "0"), ("delete", "a", ""), ("put", "a", "1-3"), ("remove", "b", "")]
)
@example([("put", "a", "0")] * 12 + [("remove", "a", ""), ("put", "b", "0")])
@given(steps)
def test_a_new_reader_has_the_last_state(history):
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setattr(simulated, "_MOST_CHANGES", 5)
        path, rows = Path(directory) / "simulated.json", {}
        records = SimulatedRecords(path, lambda: rows.values())
        for step, name, cpus in history:
            if step == "put":
                rows[name] = row(name, cpus)
                records.put(rows[name])
            elif step == "remove" and rows.pop(name, None):
                records.remove(name)
            elif step == "delete":
                path.unlink(missing_ok=True)
                continue  # until the next write there is nothing
            elif step == "torn" and path.exists():
                with path.open("ab") as file:
                    file.write(b'{"removed":"' + name.encode())
                records = SimulatedRecords(path, lambda: rows.values())
            elif step == "reopen" and path.exists():
                records = SimulatedRecords(path, lambda: rows.values())
                assert {one.status.id: one for one in records.load()} == rows
            if path.exists():
                loaded = SimulatedRecords(path, list).load()
                assert {one.status.id: one for one in loaded} == rows
                assert path.read_bytes().count(b"\n") <= 1 + max(5, 2 * len(rows)) + 1


def test_a_file_of_an_earlier_release_is_read(tmp_path):
    path = tmp_path / "simulated.json"
    path.write_bytes(msgspec.json.encode([row("a", "0"), row("b", "1")]))
    rows = SimulatedRecords(path, list).load()
    assert rows == [row("a", "0"), row("b", "1")]
    records = SimulatedRecords(path, lambda: rows)
    rows.append(row("c", "2"))
    records.put(rows[-1])
    assert SimulatedRecords(path, list).load() == rows


@pytest.mark.parametrize("damage", [b"", b"x", b'[]\n{"status":1}\n', b"[]\n\n", b'{"no":"list"}\n'])
def test_a_damaged_file_is_named(tmp_path, damage):
    path = tmp_path / "simulated.json"
    path.write_bytes(damage)
    with pytest.raises(SimulationStateError, match=r"simulated\.json.*remove it"):
        SimulatedRecords(path, list).load()


def test_a_line_that_does_not_fit_on_the_disk_is_an_error_and_leaves_the_rest(tmp_path, monkeypatch):
    path = tmp_path / "simulated.json"
    rows = [row("a", "0")]
    records = SimulatedRecords(path, lambda: rows)
    records.put(rows[0])
    write = os.write
    monkeypatch.setattr(os, "write", lambda handle, data: write(handle, data[:7]))
    with pytest.raises(OSError, match=r"simulated\.json") as failed:
        records.put(row("a", "1"))
    assert failed.value.errno == errno.ENOSPC
    monkeypatch.undo()
    assert SimulatedRecords(path, list).load() == rows
    records.put(row("a", "2"))
    assert SimulatedRecords(path, list).load() == [row("a", "2")]


def test_what_a_killed_writer_left_is_removed(tmp_path):
    left = tmp_path / ".simulated.json.x9.tmp"
    left.write_text("[")
    assert SimulatedRecords(tmp_path / "simulated.json", list).load() == []
    assert not left.exists()
