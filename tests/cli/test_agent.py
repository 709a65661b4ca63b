"""`corelane agent`: a mistake is one line that names it; faults around a running agent are shown."""

import json
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from corelane.cli import main
from support.cluster_lab import write_kubeconfig
from support.programs import Program, wait_for


def corelane_agent(*args: object) -> Result:
    return CliRunner(env={"COLUMNS": "80"}).invoke(main, ["agent", *map(str, args)])


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("run", "--state-dir", ""), ["--state-dir", "''"]),
        (("run", "--state-dir", "/etc/passwd/x"), ["/etc/passwd/x", "Not a directory", "--state-dir"]),
        (("run", "--state-dir", "/proc/nowhere"), ["state directory /proc/nowhere", "--state-dir"]),
        (("run", "--node-config", "/nowhere.yaml"), ["/nowhere.yaml", "No such file"]),
        (("run", "--kubeconfig", "/nowhere"), ["/nowhere", "No such file"]),
        (("run", "--kubeconfig", __file__), [__file__, "not a kubeconfig"]),
        (("run", "--reconcile-seconds", "nan"), ["--reconcile-seconds", "nan"]),
        (("run", "--read-only", "--ignore"), ["--read-only", "--ignore", "give one"]),
        (("run", "--nri", "nri.sock"), ["--nri", "nri.sock", "absolute path"]),
        (("status", "--state-dir", "/nowhere"), ["/nowhere", "corelane agent run", "--state-dir"]),
        (("status", "-o", "yaml"), ["yaml", "table", "json"]),
    ],
)
def test_a_mistake_is_one_line_that_names_it(tmp_path: Path, args: tuple[str, ...], words: list[str]) -> None:
    more: tuple[object, ...] = ()
    if args[0] == "run":
        more = () if "--state-dir" in args else ("--state-dir", tmp_path / "state")
        if "--kubeconfig" not in args:
            more = (*more, "--kubeconfig", write_kubeconfig(tmp_path / "config", "http://127.0.0.1:9"))
    done = corelane_agent(*args, *more)
    assert done.exit_code == 2, done.stderr
    assert "Traceback" not in done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("Error: ")]
    for word in words:
        assert word in line


@pytest.fixture
def port() -> Iterator[int]:
    """A TCP port that refuses connections; as it is bound, no other program comes to listen on it."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


def started(tmp_path: Path, port: int, log: str = "log") -> Program:
    """An agent with neither API server, nor kubelet, nor runtime."""
    file = tmp_path / "node.yaml"
    file.write_text(
        "reconcileSeconds: 1\n"
        f"runtime: {{endpoint: {tmp_path / 'containerd.sock'}, nri: off}}\n"
        f"kubelet: {{address: https://127.0.0.1:{port}, caFile: /nowhere/ca.crt}}\n"
    )
    config = write_kubeconfig(tmp_path / "config", f"http://127.0.0.1:{port}")
    flags = ("--node-config", file, "--kubeconfig", config, "--node-name", "here")
    command = (sys.executable, "-m", "corelane", "agent", "run", *flags, "--state-dir", tmp_path / "state")
    return Program(tmp_path / log, *command)


def test_an_agent_alone_shows_all_that_is_missing(tmp_path: Path, port: int) -> None:
    program = started(tmp_path, port)
    try:
        where = ("--state-dir", tmp_path / "state")

        def failing() -> dict[str, str]:
            done = corelane_agent("status", *where, "-o", "json")
            parts = json.loads(done.stdout)["sources"] if done.exit_code == 0 else []
            return {part["name"]: part["error"] for part in parts if part["state"] == "failing"}

        wanted = {"containers", "kubelet configuration", "Node"}
        wait_for("the sources to fail", lambda: wanted <= failing().keys(), 180)
        errors = failing()
        assert "containerd.sock: No such file or directory; check that" in errors["containers"]
        assert "/nowhere/ca.crt: No such file or directory; give files" in errors["kubelet configuration"]
        assert "API server http://127.0.0.1:" in errors["Node"]
        assert "Connection refused" in errors["Node"]
        shown = corelane_agent("status", *where)
        assert shown.exit_code == 0
        assert "see below" in shown.stdout
        assert max(map(len, shown.stdout.splitlines())) <= 80
    finally:
        program.stop()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_an_agent_ends_cleanly_on_a_signal(tmp_path: Path, port: int, number: signal.Signals) -> None:
    program = started(tmp_path, port)
    try:
        wait_for("the status socket", (tmp_path / "state" / "agent.sock").exists, 180)
        program.stop(number)
        assert program.process.returncode == 0, program.tail()
        assert "Traceback" not in program.tail()
        assert not (tmp_path / "state" / "agent.sock").exists()
    finally:
        program.stop(signal.SIGKILL)


def test_an_agent_that_is_stopped_is_reported_as_not_answering(tmp_path: Path, port: int) -> None:
    program = started(tmp_path, port)
    try:
        wait_for("the status socket", (tmp_path / "state" / "agent.sock").exists, 180)
        program.process.send_signal(signal.SIGSTOP)
        done = corelane_agent("status", "--state-dir", tmp_path / "state")
        assert done.exit_code == 2
        assert done.stderr.startswith("Error: process ")
        assert "does not answer on" in done.stderr
        assert "restart it (containers keep their CPUs)" in done.stderr
    finally:
        program.process.send_signal(signal.SIGCONT)
        program.stop()


def test_two_agents_at_once_the_second_waits_and_takes_over(tmp_path: Path, port: int) -> None:
    first = started(tmp_path, port)
    second = None
    try:
        wait_for("the status socket", (tmp_path / "state" / "agent.sock").exists, 180)
        second = started(tmp_path, port, "log of the second")
        waits = f"agent.lock is locked by process {first.pid}"
        wait_for("the second waits", lambda: waits in second.log.read_text(), 180)
        assert first.process.poll() is None
        assert '"event": "mode"' not in second.log.read_text()
        first.stop(signal.SIGKILL)
        wait_for("the second acts", lambda: '"event": "mode"' in second.log.read_text(), 180)
    finally:
        for program in filter(None, (first, second)):
            program.stop()
