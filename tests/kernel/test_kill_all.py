"""SIGKILL to processes from a list: never to one that merely got the pid of a listed process."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from corelane.embedded.containers.enforce import ByAffinity
from corelane.embedded.containers.shim import processes as shim_processes
from corelane.kernel import proc
from corelane.kernel.cgroup import Groups1

SLEEP = [sys.executable, "-I", "-S", "-c", "import signal; signal.pause()"]


@pytest.fixture
def processes():
    """Two processes of the test's own."""
    both = [subprocess.Popen(SLEEP) for _ in range(2)]
    yield both
    for process in both:
        process.kill()
        process.wait(10)


def listing(*answers):
    """A function that returns one list after the other, the last for ever."""
    rest = list(answers)
    return lambda: rest.pop(0) if len(rest) > 1 else rest[0]


@pytest.fixture(params=["pidfd", "no pidfd"])
def kernel(request, monkeypatch):
    """Kernels with and without descriptors of processes (before Linux 5.3)."""
    if request.param == "no pidfd":

        def missing(pid, flags=0):
            raise OSError(38, "Function not implemented")

        monkeypatch.setattr(os, "pidfd_open", missing)


@pytest.fixture(params=[proc.kill_all, shim_processes.kill_all], ids=["kernel", "shim"])
def kill_all(request):
    """Both implementations: the shim imports nothing of corelane."""
    return lambda listed: sorted(request.param(listed))


def test_listed_processes_are_killed(processes, kernel, kill_all):
    pids = [process.pid for process in processes]
    assert kill_all(listing(pids)) == sorted(pids)
    assert [process.wait(10) for process in processes] == [-signal.SIGKILL] * 2


def test_a_pid_that_is_listed_no_more_is_not_killed(processes, kernel, kill_all):
    """The member ended after the first list, and its pid went to another process."""
    member, bystander = processes
    assert kill_all(listing([member.pid, bystander.pid], [member.pid])) == [member.pid]
    assert member.wait(10) == -signal.SIGKILL
    assert bystander.poll() is None


def test_a_pid_that_is_listed_only_the_second_time_waits_for_the_next_pass(processes, kernel, kill_all):
    member, newborn = processes
    assert kill_all(listing([member.pid], [member.pid, newborn.pid])) == sorted([member.pid, newborn.pid])
    assert member.wait(10) == -signal.SIGKILL
    assert newborn.poll() is None


def test_an_ended_process_and_an_empty_list_are_no_error(processes, kernel, kill_all):
    ended = subprocess.Popen([sys.executable, "-I", "-S", "-c", ""])
    ended.wait(10)
    assert kill_all(listing([ended.pid])) == [ended.pid]
    assert kill_all(listing([])) == []


class ChangingFiles:
    """Reads of cgroup.procs give one answer after the other."""

    def __init__(self, *answers):
        self.next = listing(*answers)

    def read(self, path):
        return "\n".join(map(str, self.next()))

    def groups(self, path):
        return []


def test_a_cgroup_is_emptied_without_killing_a_process_that_got_a_members_pid(processes):
    member, bystander = processes
    files = ChangingFiles([member.pid, bystander.pid], [member.pid])
    groups = Groups1({"cpuset": Path("/x"), "cpu": Path("/x")}, files)
    assert groups.kill("corelane/i/p/c") == [member.pid]
    assert member.wait(10) == -signal.SIGKILL
    assert bystander.poll() is None


def test_what_a_killed_shim_left_is_ended_without_killing_a_bystander(processes, monkeypatch):
    member, bystander = processes
    listed = listing([member.pid, bystander.pid], [member.pid])
    monkeypatch.setattr(proc, "bearing", lambda variable: listed())

    class Lost:
        state = "running"
        left = ()

    class Stored:
        id = "x"

    ByAffinity().end(Stored(), Lost())
    assert member.wait(10) == -signal.SIGKILL
    assert bystander.poll() is None
