"""What shows that containers run, found again and again: as by reading everything anew."""

import os
import subprocess
import sys
import time

from corelane.kernel import proc
from corelane.runtime import container_search
from corelane.runtime.container_search import MARK, KnownTraces

SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]


def started(*command, mark=""):
    environment = {**os.environ, MARK: mark} if mark else dict(os.environ)
    return subprocess.Popen(command, env=environment)


def ended(process):
    process.kill()
    process.wait()


def wait_for(condition):
    deadline = time.monotonic() + 20
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
