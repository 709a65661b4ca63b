"""Tasks of a container's cgroup in the kernel's own version 1: sampled, and brought back."""

import subprocess
import sys
import threading
import time

import pytest

from corelane.cpuset import CPUSet
from corelane.kernel import container_cgroup, proc
from corelane.kernel.container_paths import CgroupView
from support.cgroup2_fake import FakeV2

THREADS = """
import threading, time
for _ in range(20): threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
print(flush=True)
time.sleep(60)
"""


@pytest.fixture
def crowd(view, group):
    """A process of 21 threads in the container's groups."""
    process = subprocess.Popen([sys.executable, "-c", THREADS], stdout=subprocess.PIPE)
    process.stdout.readline()
    for top in (view.cpuset, view.cpu):
        (top / group / "cgroup.procs").write_text(str(process.pid))
    yield process
    process.kill()
    process.wait()


def test_a_sample_is_bounded_and_without_a_bound_has_every_task(view, group, crowd):
    cpus = container_cgroup.effective(view, group)
    assert len(container_cgroup.sample(view, group)) == 21
    assert {task.cpus for task in container_cgroup.sample(view, group)} == {cpus}
    assert len(container_cgroup.sample(view, group, 5)) == 5


def test_one_thread_that_was_moved_out_of_the_cpuset_is_seen_and_brought_back(view, group, crowd):
    everything = container_cgroup.effective(view, "")
    low = CPUSet([min(everything)])
    container_cgroup.write_cpuset(view, group, cpus=low)
    assert container_cgroup.bring_back(view, group) == []
    stray = proc.tasks(crowd.pid)[-1]
    (view.cpuset / "tasks").write_text(str(stray))
    assert everything in {task.cpus for task in container_cgroup.sample(view, group)}
    assert container_cgroup.bring_back(view, group) == [stray]
    assert {task.cpus for task in container_cgroup.sample(view, group)} == {low}


def test_a_whole_process_that_was_moved_out_of_the_cpuset_is_seen_and_brought_back(view, group, crowd):
    low = CPUSet([min(container_cgroup.effective(view, ""))])
    container_cgroup.write_cpuset(view, group, cpus=low)
    (view.cpuset / "cgroup.procs").write_text(str(crowd.pid))
    assert low not in {task.cpus for task in container_cgroup.sample(view, group)}
    assert len(container_cgroup.bring_back(view, group)) == 21
    assert {task.cpus for task in container_cgroup.sample(view, group)} == {low}


def test_tasks_in_a_group_below_are_left_there(view, group, crowd):
    (view.cpuset / group / "nested/cgroup.procs").write_text(str(crowd.pid))
    assert container_cgroup.bring_back(view, group) == []
    assert len(container_cgroup.sample(view, group)) == 21


def test_threads_that_end_meanwhile_are_no_error(view, group):
    thread = threading.Thread(target=time.sleep, args=(0,))
    thread.start()
    thread.join()
    assert container_cgroup._moved(view, view.cpuset / group / "tasks", (1 << 22) - 1) is False


def test_version_2_has_nothing_to_bring_back_and_pids_of_other_namespaces_are_skipped(tmp_path):
    fake = FakeV2(tmp_path / "cgroup")
    view = CgroupView(2, fake.root, fake.root, fake)
    fake.mkdir(fake.root / "c")
    (fake.root / "c" / "cgroup.procs").write_text("0\n0\n")
    assert container_cgroup.sample(view, "c") == []
    assert container_cgroup.bring_back(view, "c") == []
