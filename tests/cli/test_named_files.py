"""Every option and argument that names a file to read: what is not such a file is one line, in seconds.

A named pipe without a writer keeps no command waiting; a device without an end fills no memory.
"""

import os
import resource
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner

from corelane import input_files
from corelane.cli import main

EXAMPLES = Path(__file__).parents[2] / "examples"
EXAMPLE = str(EXAMPLES / "latency-critical.yaml")
MACHINE = ("--machine", "socket:1 core:8 smt:2")
MEMORY = 2 << 30
"""Bytes of address space of a command: enough for the largest file that is read, not for a device."""
COMMANDS = {
    "up --node-config": "up --port 0 --node-config FILE",
    "up --restore-backup": "up --port 0 --restore-backup FILE",
    "agent run --node-config": "agent run --state-dir DIR --node-config FILE",
    "agent run --kubeconfig": "agent run --state-dir DIR --kubeconfig FILE",
    "scheduler --kubeconfig": "scheduler --port 0 --kubeconfig FILE",
    "scheduler --config": "scheduler --port 0 --config FILE",
    "scheduler --extender-token-file": "scheduler --extender --extender-token-file FILE",
    "scheduler --tls-cert-file": "scheduler --extender --tls-cert-file FILE --tls-private-key-file FILE",
    "status --kubeconfig": "status --kubeconfig FILE",
    "explain --kubeconfig": "explain pod web --kubeconfig FILE",
    "explain --config": "explain pod web --config FILE",
    "topology --machine": "topology --machine FILE",
    "topology --sysfs": "topology --sysfs FILE",
    "state show": "state show FILE",
    "state verify": "state verify FILE MACHINE",
    "state verify --kubelet-config": "state verify STATE MACHINE --kubelet-config FILE",
    "state convert": "state convert FILE --to v4",
    "state repair": "state repair FILE MACHINE --root DIR --dry-run",
    "state repair --pods": "state repair STATE MACHINE --root DIR --pods FILE --dry-run",
    "allocate -f": "allocate MACHINE -f FILE",
    "allocate --state": "allocate MACHINE -f EXAMPLE --state FILE",
    "allocate --node": "allocate MACHINE -f EXAMPLE --node FILE",
    "allocate --node-config": "allocate MACHINE -f EXAMPLE --node-config FILE",
    "limits lint": "limits lint FILE",
    "limits lint --policy": "limits lint EXAMPLE --policy FILE",
    "limits lint --baseline": "limits lint EXAMPLE --baseline FILE",
    "limits simulate": "limits simulate FILE",
    "limits advise": "limits advise FILE",
    "limits advise --policy": "limits advise --policy FILE --prometheus http://127.0.0.1:9",
    "limits watch --pods": "limits watch --count 1 --pods FILE",
    "limits watch --bearer-token-file": (
        "limits watch --count 1 --prometheus http://127.0.0.1:9 --bearer-token-file FILE"
    ),
}
KINDS = ("pipe", "zero", "directory", "missing", "loop", "latin")
WORDS = {
    "pipe": ("a pipe that no process writes to", "not a regular file"),
    "zero": ("larger than", "not a regular file"),
    "missing": ("does not exist", "o such file"),
    "loop": ("does not exist", "ymbolic link", "o such file"),
}


@pytest.fixture(autouse=True)
def _no_writer_is_waited_for_long(monkeypatch):
    monkeypatch.setattr(input_files, "_WRITER_MS", 50)


def named(kind: str, directory: Path) -> str:
    path = directory / kind
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "zero":
        return "/dev/zero"
    elif kind == "directory":
        path.mkdir()
    elif kind == "loop":
        path.symlink_to(path)
    elif kind == "latin":
        path.write_bytes(b"caf\xe9: \xff\xfe\n")
        path.chmod(0o600)
    return str(path)


def arguments(command: str, file: str, directory: Path) -> list[str]:
    state = directory / "cpu_manager_state"
    state.write_text('{"policyName":"none","defaultCpuSet":"","checksum":1353318690}')
    controllers = directory / "sys/fs/cgroup/cgroup.controllers"
    controllers.parent.mkdir(parents=True, exist_ok=True)
    controllers.write_text("cpuset cpu")
    values = {
        "FILE": [file],
        "DIR": [str(directory)],
        "STATE": [str(state)],
        "EXAMPLE": [EXAMPLE],
        "MACHINE": [*MACHINE, "--reserved", "1"] if "state" in command.split()[:1] else [*MACHINE],
    }
    return [word for part in COMMANDS[command].split() for word in values.get(part, [part])]


def environment(directory: Path) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if name != "KUBECONFIG"}
    return {**inherited, "HOME": str(directory), "CORELANE_UP_DATA_DIR": str(directory / "up")}


def check(kind: str, file: str, status: int | None, stderr: str) -> None:
    lines = [line for line in stderr.splitlines() if file in line]
    assert (status, len(lines)) == (2, 1), stderr
    assert "Traceback" not in stderr
    assert any(word in lines[0] for word in WORDS.get(kind, ("",))), lines[0]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_names_in_one_line_what_is_not_a_file_of_this_kind(tmp_path, command, kind):
    file = named(kind, tmp_path)
    if kind == "directory" and command in ("limits lint", "topology --sysfs", "topology --machine"):
        pytest.skip("takes a directory")
    if command == "state repair" and kind in ("missing", "loop", "latin"):
        pytest.skip("rebuilds what is missing or damaged")
    runner = CliRunner(env={**environment(tmp_path), "KUBECONFIG": None})
    result = runner.invoke(main, arguments(command, file, tmp_path))
    check(kind, file, result.exit_code, result.stderr)


@pytest.mark.parametrize("command", ["up --node-config", "agent run --node-config", "scheduler --config"])
def test_a_daemon_ends_at_once_with_one_line_and_takes_no_memory(tmp_path, command):
    file = named("zero", tmp_path)
    result = subprocess.run(
        [sys.executable, "-m", "corelane", *arguments(command, file, tmp_path)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        env=environment(tmp_path),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY)),
    )
    check("zero", file, result.returncode, result.stderr)


@pytest.mark.parametrize("command", ["limits lint", "limits simulate", "limits lint --policy"])
def test_a_pipe_with_a_writer_is_read_as_a_file(tmp_path, command):
    content = {
        "limits lint": Path(EXAMPLE).read_text(),
        "limits simulate": (EXAMPLES / "limits/long-request.yaml").read_text(),
        "limits lint --policy": "severity: {cpu-limit: off}\n",
    }[command]
    pipe = named("pipe", tmp_path)
    writer = threading.Thread(target=Path(pipe).write_text, args=(content,))
    writer.start()
    piped = CliRunner().invoke(main, arguments(command, pipe, tmp_path))
    writer.join(10)
    Path(pipe).unlink()
    Path(pipe).write_text(content)
    assert piped.output == CliRunner().invoke(main, arguments(command, pipe, tmp_path)).output
    assert piped.exit_code in (0, 1)


def test_process_substitution_is_read_as_a_file():
    words = f"{sys.executable} -m corelane limits lint <(sleep 1.5; cat {EXAMPLE})"
    result = subprocess.run(["bash", "-c", words], capture_output=True, text=True, timeout=120)
    assert result.returncode in (0, 1), result.stderr
    assert "1 workload" in result.stderr
