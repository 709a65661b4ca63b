"""What shows that containers run, found again and again: as by reading everything anew."""

import os
import subprocess
import sys
import time

from corelane.embedded.containers import container_search
from corelane.embedded.containers.container_search import MARK, KnownTraces
from corelane.kernel import proc

SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]


def started(*command, mark=""):
    environment = {**os.environ, MARK: mark} if mark else dict(os.environ)
    return subprocess.Popen(command, env=environment)


def ended(process):
    process.kill()
    process.wait()


def wait_for(condition):
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_marked_processes_are_found_as_they_come_and_go():
    known = KnownTraces()
    known.look()
    one, other = started(*SLEEP, mark="id-one"), started(*SLEEP, mark="id-two")
    plain = started(*SLEEP)
    try:
        wait_for(lambda: {"id-one", "id-two"} <= known.look().marked.keys())
        found = known.look().marked
        assert found["id-one"] == [proc.identity(one.pid)]
        assert plain.pid not in {process.pid for group in found.values() for process in group}
        assert found["id-two"] == container_search.marked()["id-two"]
        ended(one)
        found = known.look().marked
        assert "id-one" not in found and "id-two" in found
    finally:
        for process in (one, other, plain):
            ended(process)


def test_a_mark_that_comes_with_another_program_is_noticed():
    """As a shim's child, which is seen before it starts the container's command."""
    known = KnownTraces()
    script = (
        "import os, sys; sys.stdin.readline(); "
        f"os.execve('/bin/sleep', ['sleep', '60'], {{'{MARK}': 'late'}})"
    )
    process = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE)
    try:
        assert "late" not in known.look().marked
        process.stdin.write(b"\n")
        process.stdin.flush()
        wait_for(lambda: "late" in known.look().marked)
    finally:
        ended(process)
        process.stdin.close()


def test_a_mark_that_comes_with_the_same_program_is_noticed_after_some_looks():
    known = KnownTraces()
    code = "import sys, time; print(flush=True); time.sleep(60)"
    script = (
        "import os, sys; sys.stdin.readline(); "
        f"os.execve(sys.executable, [sys.executable, '-c', {code!r}], {{'{MARK}': 'same'}})"
    )
    process = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        known.look()
        process.stdin.write(b"\n")
        process.stdin.flush()
        process.stdout.readline()
        assert any("same" in known.look().marked for _ in range(KnownTraces._EVERY + 1))
    finally:
        ended(process)
        process.stdin.close()
        process.stdout.close()


class Proc:
    """A /proc of processes that are written by id; reads of their states are counted."""

    def __init__(self, path):
        self.path, self.read = path, []

    def write(self, pid, name, start, mark=""):
        directory = self.path / str(pid)
        directory.mkdir(exist_ok=True)
        fields = ["S", "1", "1", "1", *["0"] * 15, str(start), *["0"] * 10]
        (directory / "stat").write_text(f"{pid} ({name}) {' '.join(fields)}\n")
        (directory / "environ").write_text(f"{MARK}={mark}\0" if mark else "")
        (directory / "cmdline").write_text("")
        user = "\t".join([str(os.geteuid())] * 4)
        (directory / "status").write_text(f"Name:\t{name}\nUid:\t{user}\n")

    def counted(self, monkeypatch):
        stat = proc.stat
        monkeypatch.setattr(proc, "stat", lambda pid, *more: (self.read.append(pid), stat(pid, *more))[1])

    def look(self, known, own=()):
        self.read.clear()
        return {mark: [one.pid for one in found] for mark, found in known.look(own).marked.items()}


def test_the_state_of_processes_without_or_with_a_known_container_is_read_in_turn(tmp_path, monkeypatch):
    kernel, known = Proc(tmp_path), KnownTraces(tmp_path)
    kernel.counted(monkeypatch)
    for pid in range(100, 150):
        kernel.write(pid, "plain", 1)
    for pid in range(150, 160):
        kernel.write(pid, "ours", 1, "own")
    kernel.write(200, "theirs", 1, "other")
    everything = {"own": list(range(150, 160)), "other": [200]}
    assert kernel.look(known, {"own"}) == everything
    assert kernel.look(known, {"own"}) == everything
    read = []
    for _ in range(KnownTraces._SHARE):
        assert kernel.look(known, {"own"}) == everything
        assert 200 in kernel.read and len(kernel.read) == 13
        read += kernel.read
    assert set(read) == {*range(100, 160), 200}
    kernel.look(known)
    assert {*range(150, 160)} <= {*kernel.read}, "its container is not known any more"


def test_a_process_that_got_a_known_id_is_noticed_within_some_looks(tmp_path):
    kernel, known = Proc(tmp_path), KnownTraces(tmp_path)
    for pid in range(100, 110):
        kernel.write(pid, "plain", 1)
    for _ in range(3):
        assert kernel.look(known) == {}
    for pid in range(100, 110):
        kernel.write(pid, "plain", 2, f"id-{pid}")
    for _ in range(KnownTraces._SHARE):
        found = kernel.look(known)
    assert found == {f"id-{pid}": [pid] for pid in range(100, 110)}


def test_a_new_process_that_gets_another_program_is_noticed_at_the_next_look(tmp_path):
    kernel, known = Proc(tmp_path), KnownTraces(tmp_path)
    for pid in range(100, 110):
        kernel.write(pid, "python3", 1)
    assert kernel.look(known) == {}
    for pid in range(100, 110):
        kernel.write(pid, "sleep", 1, "late")
    assert kernel.look(known) == {"late": list(range(100, 110))}
