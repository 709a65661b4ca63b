"""`corelane agent status` where no agent answers: saved files, or what to do."""

import json
import os
import socket
from pathlib import Path

import pytest

from corelane.agent import agent_status, state_directory
from corelane.app import machines
from corelane.app.agent import status
from corelane.app.agent.status import NoAgent
from corelane.node import codec
from corelane.node.config import NodeConfig
from corelane.node.ledger import new
from corelane.runtime.nri.acting_lock import state_lock


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A state directory as an agent left it."""
    ledger = new(machines.load(None), NodeConfig(policy="pools"))
    (tmp_path / "ledger.json").write_bytes(codec.encode(ledger))
    (tmp_path / "settings.json").write_text('{"policy": "pools", "labels": {}, "annotations": {}}')
    return tmp_path


def test_the_saved_state_has_all_keys_of_a_running_agent(saved: Path) -> None:
    document = status.read(saved)
    assert document.keys() == agent_status.document("x").keys()
    assert (document["running"], document["policy"], document["ledger"]["fault"]) == (False, "pools", "")
    json.dumps(document)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", ["not valid JSON", "move the file away"]),
        ('{"kind": "corelane-ledger", "version": 99}', ["version 99"]),
    ],
)
def test_a_ledger_that_cannot_be_read_is_a_fault_and_stays(
    saved: Path, content: str, words: list[str]
) -> None:
    (saved / "ledger.json").write_text(content)
    fault = status.read(saved)["ledger"]["fault"]
    for word in words:
        assert word in fault
    assert (saved / "ledger.json").read_text() == content


@pytest.mark.parametrize("name", ["ledger.json", "settings.json"])
def test_a_directory_in_place_of_a_file_is_a_fault(saved: Path, name: str) -> None:
    (saved / name).unlink()
    (saved / name).mkdir()
    document = status.read(saved)
    faults = {"ledger.json": document["ledger"]["fault"], "settings.json": document["settingsFault"]}
    assert faults.pop(name) == f"{saved / name}: Is a directory"
    assert set(faults.values()) == {""}


def test_without_agent_and_files_the_message_says_how_to_start_one(tmp_path: Path) -> None:
    with pytest.raises(NoAgent, match=r"no agent runs.*corelane agent run.*--state-dir"):
        status.read(tmp_path / "nowhere")


def test_an_agent_without_socket_is_not_taken_for_one_that_does_not_run(saved: Path) -> None:
    lock = state_lock(saved)
    assert lock.try_acquire() == ""
    try:
        fault = status.read(saved)["fault"]
        assert fault == f"process {os.getpid()} acts, but has no agent.sock; see its log"
        (saved / "ledger.json").unlink()
        with pytest.raises(NoAgent, match=f"process {os.getpid()} starts"):
            status.read(saved)
    finally:
        lock.release()
    with pytest.raises(NoAgent, match="no agent runs"):
        status.read(saved)


def test_an_agent_that_hangs_is_named_with_what_to_do(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    really = state_directory.read_status
    monkeypatch.setattr(state_directory, "read_status", lambda directory: really(directory, 0.2))
    lock = state_lock(saved)
    assert lock.try_acquire() == ""
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(saved / "agent.sock"))
        silent.listen()
        with pytest.raises(
            NoAgent, match=rf"process {os.getpid()} does not answer on .*agent.sock.*restart it"
        ):
            status.read(saved)
    lock.release()


def test_an_answer_that_is_cut_short_is_an_error(saved: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(saved / "agent.sock"))
        server.listen()
        server.settimeout(30)
        pid = os.fork()
        if pid == 0:
            connection, _ = server.accept()
            connection.sendall(b'{"node": ')
            os._exit(0)
        with pytest.raises(OSError, match="answer is incomplete"):
            status.read(saved)
        os.waitpid(pid, 0)
