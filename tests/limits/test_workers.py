"""A busy loop must not outlive whoever measures it, not even one that is killed."""

import os
import subprocess
import sys
import time
from pathlib import Path

_PARENT = """
import os, time
from corelane.limits.calibration.workers import Worker
worker = Worker(min(os.sched_getaffinity(0)), (0, 0, 10**18, 0, 0, 0))
worker.wait_ready()
worker.begin(0)
print(worker.pid, flush=True)
time.sleep(60)
"""


def test_a_worker_ends_with_whoever_started_it_even_if_that_is_killed():
    parent = subprocess.Popen([sys.executable, "-c", _PARENT], stdout=subprocess.PIPE, text=True)
    try:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        assert _runs(worker)
    finally:
        parent.kill()
        parent.communicate()
    deadline = time.monotonic() + 120
    while _runs(worker) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not _runs(worker)


def _runs(pid: int) -> bool:
    """Whether the process is there, and no zombie that nobody has collected yet."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return os.getpid() != pid and state != "Z"
