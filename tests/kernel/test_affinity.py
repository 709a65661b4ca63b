import os
import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corelane.cpuset import CPUSet
from corelane.kernel import affinity, proc

MINE = CPUSet(os.sched_getaffinity(0))
sets = st.integers(1, 255).map(CPUSet.from_mask)

needs_two_cpus = pytest.mark.skipif(len(MINE) < 2, reason="needs two CPUs")


@given(sets, sets)
def test_a_task_is_never_left_outside_its_containers_cpus(current, cpus):
    assert affinity.wanted(current, cpus) <= cpus
    assert affinity.wanted(current, cpus, previous=current) == cpus


@given(sets, sets)
def test_a_task_that_pinned_itself_within_is_left_alone(current, cpus):
    assert affinity.wanted(current & cpus or cpus, cpus) == (current & cpus or cpus)


@given(sets, sets, sets)
def test_what_was_decided_once_is_not_changed_again(current, cpus, previous):
    once = affinity.wanted(current, cpus, previous)
    assert affinity.wanted(once, cpus) == once


def test_a_task_that_pinned_itself_keeps_its_choice_when_the_pool_grows():
    pool, grown, own = CPUSet([0, 1]), CPUSet([0, 1, 2]), CPUSet([1])
    assert affinity.wanted(own, grown, previous=pool) == own
    assert affinity.wanted(own, CPUSet([0, 2]), previous=pool) == CPUSet([0, 2]), (
        "nothing of its choice is left"
    )


CROWD = """
import os, subprocess, sys, threading, time
child = subprocess.Popen(["sh", "-c", "sleep 60 & sleep 60 & wait"])
threads = [threading.Thread(target=time.sleep, args=(60,), daemon=True) for _ in range(5)]
for thread in threads: thread.start()
def breed():
    while True:
        threading.Thread(target=time.sleep, args=(0.01,), daemon=True).start()
        time.sleep(0.002)
threading.Thread(target=breed, daemon=True).start()
print("ready", flush=True)
time.sleep(60)
"""


@pytest.fixture
def crowd():
    """A process with threads, some of them new every moment, and with descendants."""
    process = subprocess.Popen([sys.executable, "-c", CROWD], stdout=subprocess.PIPE, start_new_session=True)
    process.stdout.readline()
    yield process.pid
    os.killpg(process.pid, 9)
    process.wait()
    process.stdout.close()


def everybody(pid):
    return [pid, *proc.descendants(pid)]


@needs_two_cpus
def test_a_whole_tree_follows_while_it_makes_new_threads(crowd):
    for cpu in (min(MINE), max(MINE), min(MINE)):
        target = CPUSet([cpu])
        assert affinity.repin(lambda: everybody(crowd), target).changed >= 9
        time.sleep(0.02)
        assert {task.cpus for task in proc.tasks_allowed(everybody(crowd))} == {target}
    assert affinity.repin(lambda: everybody(crowd), target).changed == 0


@needs_two_cpus
def test_only_who_left_is_brought_back(crowd):
    target = CPUSet([min(MINE)])
    affinity.repin(lambda: everybody(crowd), target)
    os.sched_setaffinity(proc.descendants(crowd)[-1], MINE)
    assert affinity.repin(lambda: everybody(crowd), target) == affinity.Repinned(1, ())


def test_cpus_that_do_not_exist_are_refused_by_name(crowd):
    with pytest.raises(affinity.AffinityError, match=r"cannot be pinned to CPUs 4000-4001: none is online"):
        affinity.repin(lambda: [crowd], CPUSet([4000, 4001]))


def test_a_cpu_that_does_not_exist_beside_one_that_does_is_no_reason_to_try_for_ever(crowd):
    affinity.repin(lambda: [crowd], CPUSet([min(MINE), 4000]), previous=MINE)
    assert affinity.repin(lambda: [crowd], CPUSet([min(MINE), 4000])).changed == 0


@needs_two_cpus
def test_a_tree_that_something_else_keeps_moving_is_reported(crowd):
    def restless():
        os.sched_setaffinity(crowd, MINE)
        return [crowd]

    with pytest.raises(affinity.AffinityError, match="something else changes their affinity"):
        affinity.repin(restless, CPUSet([min(MINE)]))


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
def test_tasks_that_are_not_ours_to_move_are_named(crowd):
    code = """
import os, sys
from corelane.kernel import affinity
from corelane.cpuset import CPUSet
os.setgroups([]); os.setgid(65534); os.setuid(65534)
print(os.path.exists(f"/proc/{sys.argv[1]}"))
print(affinity.repin(lambda: [int(sys.argv[1])], CPUSet([int(sys.argv[2])])).refused)
"""
    for tid in proc.tasks(crowd):
        os.sched_setaffinity(tid, [max(MINE)])
    if len(MINE) < 2:
        pytest.skip("needs two CPUs")
    out = subprocess.check_output([sys.executable, "-c", code, str(crowd), str(min(MINE))], text=True)
    if out.startswith("False"):
        pytest.skip("/proc hides other users' processes (hidepid)")
    assert str(crowd) in out
