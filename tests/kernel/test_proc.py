import os
import subprocess
import sys
import threading
import time

import pytest

from corelane.cpuset import CPUSet
from corelane.kernel import proc
from corelane.kernel.proc import Identity, TaskAffinity


@pytest.fixture
def sleeper():
    process = subprocess.Popen(["sleep", "60"])
    yield process
    process.kill()
    process.wait()


def test_a_process_is_known_by_pid_and_start(sleeper):
    who = proc.identity(sleeper.pid)
    assert who is not None
    assert proc.is_alive(who)
    assert not proc.is_alive(Identity(who.pid, who.start_ticks + 1)), "the same pid, another process"


def test_a_process_that_only_waits_to_be_reaped_is_not_alive(sleeper):
    who = proc.identity(sleeper.pid)
    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    assert proc.stat(sleeper.pid).state == "Z"
    assert not proc.is_alive(who)
    assert proc.allowed(sleeper.pid) is None
    sleeper.wait()
    assert proc.stat(sleeper.pid) is None
    assert not proc.is_alive(who)


def test_a_name_with_parentheses_and_spaces_is_read_whole(tmp_path):
    (tmp_path / "77").mkdir()
    fields = ["S", "5", "77", "70", *["0"] * 15, "123456", "0"]
    (tmp_path / "77" / "stat").write_text("77 (a) b (c) " + " ".join(fields))
    assert proc.stat(77, tmp_path) == proc.ProcessStat(77, "a) b (c", "S", 5, 70, 123456)


def test_every_thread_is_listed_with_its_own_affinity():
    mine = CPUSet(os.sched_getaffinity(0))
    first = CPUSet([min(mine)])
    pinned, done = threading.Event(), threading.Event()
    tid = []

    def work():
        tid.append(threading.get_native_id())
        os.sched_setaffinity(0, first)
        pinned.set()
        done.wait()

    thread = threading.Thread(target=work)
    thread.start()
    pinned.wait()
    found = proc.tasks_allowed([os.getpid()])
    done.set()
    thread.join()
    assert TaskAffinity(os.getpid(), os.getpid(), mine) in found
    assert TaskAffinity(os.getpid(), tid[0], first) in found


def test_a_process_that_is_gone_has_no_tasks():
    process = subprocess.Popen(["true"])
    process.wait()
    assert proc.tasks_allowed([process.pid]) == []
    assert proc.tasks(process.pid) == []
    assert proc.identity(process.pid) is None
    assert proc.descendants(process.pid) == []


@pytest.fixture
def family():
    """A process with a child that has two."""
    script = "sleep 60 & (sleep 60 & sleep 60 & wait) & wait"
    process = subprocess.Popen(["sh", "-c", script], start_new_session=True)
    deadline = time.monotonic() + 120
    while len(proc.descendants(process.pid)) < 4 and time.monotonic() < deadline:
        time.sleep(0.01)
    yield process.pid
    os.killpg(process.pid, 9)
    process.wait()


def test_descendants_are_found_parents_first(family):
    found = proc.descendants(family)
    assert len(found) == 4
    assert set(proc.children(family)) == set(found[:2])
    parents = [proc.stat(pid).ppid for pid in found]
    assert all(parent == family or parent in found[:place] for place, parent in enumerate(parents))


def test_descendants_are_found_on_kernels_that_do_not_list_children(family, monkeypatch):
    listed = proc.descendants(family)
    monkeypatch.setattr(proc, "_lists_children", lambda pid, directory: False)
    assert sorted(proc.descendants(family)) == sorted(listed)
    assert sorted(proc.children(family)) == sorted(listed[:2])


def test_processes_are_found_by_a_mark_in_their_environment():
    mark = f"CORELANE_TEST_MARK={os.urandom(8).hex()}"
    name, _, value = mark.partition("=")
    process = subprocess.Popen(["sleep", "60"], env={"A": "b", name: value, "Z": "y"})
    try:
        assert proc.bearing(mark) == [process.pid]
        assert proc.bearing(mark[:-1]) == []
    finally:
        process.kill()
        process.wait()


def test_the_boot_has_a_name():
    assert len(proc.boot_id()) == 36
    assert proc.boot_id() == proc.boot_id()


def test_a_signal_reaches_the_very_process_only(sleeper):
    who = proc.identity(sleeper.pid)
    assert not proc.send(Identity(who.pid, who.start_ticks - 1), 9)
    assert sleeper.poll() is None
    assert proc.send(who, 9)
    assert sleeper.wait() == -9
    assert not proc.send(who, 9)


def test_a_signal_is_sent_by_pid_where_the_kernel_has_no_pidfds(sleeper, monkeypatch):
    def missing(pid, flags=0):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(os, "pidfd_open", missing)
    who = proc.identity(sleeper.pid)
    assert not proc.send(Identity(who.pid, who.start_ticks - 1), 9)
    assert proc.send(who, 15)
    assert sleeper.wait() == -15


def test_proc_costs_no_more_than_the_standard_library():
    code = "import sys, corelane.kernel.proc; print('asyncio' in sys.modules, 'msgspec' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "False False\n"
