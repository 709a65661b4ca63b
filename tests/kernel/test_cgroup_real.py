"""The kernel's own cgroups, of whichever version is mounted here; all below a root of the test's own."""

import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from corelane.cpuset import CPUSet
from corelane.kernel import cgroup, proc
from corelane.kernel.cgroup import Groups2, mounts
from corelane.kernel.cgroupfs import KERNEL
from support import real_cgroups


@pytest.fixture
def home():
    with real_cgroups.instance() as found:
        yield found


@pytest.fixture
def sleeper():
    process = subprocess.Popen(["sleep", "60"])
    yield process
    process.kill()
    process.wait()


def test_a_process_in_a_group_may_use_its_cpus_and_no_others(home, sleeper):
    groups, name = home
    group = cgroup.join(name, "pod", "main")
    groups.create(group)
    everything = groups.read(group).effective
    for cpu in (min(everything), max(everything)):
        groups.set_cpus(group, CPUSet([cpu]))
        groups.add(group, sleeper.pid)
        assert groups.read(group).effective == proc.allowed(sleeper.pid) == CPUSet([cpu])
    assert groups.pids(cgroup.join(name)) == [sleeper.pid]


THREADS = """
import threading, time
for _ in range(4):
    threading.Thread(target=time.sleep, args=(60,)).start()
print(flush=True)
"""


def test_every_thread_moves_with_its_process(home):
    groups, name = home
    process = subprocess.Popen([sys.executable, "-c", THREADS], stdout=subprocess.PIPE)
    try:
        process.stdout.readline()
        group = cgroup.join(name, "threads")
        groups.create(group)
        cpu = CPUSet([min(groups.read(group).effective)])
        groups.set_cpus(group, cpu)
        groups.add(group, process.pid)
        found = proc.tasks_allowed(groups.pids(group))
        assert len(found) == 5
        assert {task.cpus for task in found} == {cpu}
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_request_and_limit_reach_the_kernel(home):
    groups, name = home
    group = cgroup.join(name, "pod")
    groups.create(group)
    groups.set_request(group, 500, "container")
    groups.set_quota(group, 50_000)
    found = groups.read(group)
    assert (found.quota_us, found.period_us) == (50_000, 100_000)
    assert found.shares == 512 if groups.version == 1 else found.weight == 59
    groups.set_quota(
        group, 1_000, 1_000
    )  # from 50 ms per 100 ms, which would be too much for a period of 1 ms
    assert (groups.read(group).quota_us, groups.read(group).period_us) == (1_000, 1_000)
    groups.set_quota(group, None)
    assert groups.read(group).quota_us is None


def test_a_quota_throttles(home):
    groups, name = home
    group = cgroup.join(name, "slow")
    groups.create(group)
    groups.set_quota(group, 10_000)
    spinner = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        groups.add(group, spinner.pid)
        before, start = _cpu_seconds(spinner.pid), time.monotonic()
        time.sleep(0.6)
        used = (_cpu_seconds(spinner.pid) - before) / (time.monotonic() - start)
        assert used < 0.3, "a tenth of a CPU, give or take what was granted before"
    finally:
        spinner.kill()
        spinner.wait()


def _cpu_seconds(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_groups_below_follow_the_one_above(home):
    groups, name = home
    main, deep = cgroup.join(name, "pod", "main"), cgroup.join(name, "pod", "main", "own", "deep")
    groups.create(deep)
    everything = groups.read(main).effective
    if len(everything) < 2:
        pytest.skip("needs two CPUs")
    low, high = CPUSet([min(everything)]), CPUSet([max(everything)])
    groups.set_cpus(main, low | high)
    groups.set_cpus(deep, low)
    groups.set_cpus(main, high)
    assert (groups.read(main).effective, groups.read(deep).effective) == (high, high)
    groups.set_cpus(main, low)
    assert groups.read(cgroup.join(name, "pod")).cpus >= low | high, "groups above grow, and never shrink"
    assert (groups.read(main).effective, groups.read(deep).effective) == (low, low)


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (
            lambda groups, group: groups.set_cpus(group, CPUSet([100_000])),
            r"cpuset\.cpus: (ERANGE|EINVAL|EACCES): ",
        ),
        (lambda groups, group: groups.set_quota(group, 5), r"(cpu\.cfs_quota_us|cpu\.max): EINVAL: .*1 ms"),
        (lambda groups, group: groups.add(group, 4194303), r"cgroup\.procs: ESRCH: the process has ended"),
        (lambda groups, group: groups.read(group + "x"), r"ENOENT: no such group, or its controller"),
    ],
    ids=["cpus", "quota", "process", "group"],
)
def test_the_kernels_refusals_are_explained(home, action, message):
    groups, name = home
    group = cgroup.join(name, "pod")
    groups.create(group)
    with pytest.raises(cgroup.CgroupError, match=message) as caught:
        action(groups, group)
    assert str(caught.value.path) in str(caught.value)


def test_a_group_in_use_is_not_deleted(home, sleeper):
    groups, name = home
    group = cgroup.join(name, "busy")
    groups.create(group)
    groups.add(group, sleeper.pid)
    with pytest.raises(cgroup.CgroupError, match="EBUSY: processes or groups are still in it"):
        groups.delete(group, timeout_seconds=0.05)
    assert sleeper.poll() is None
    assert groups.pids(group) == [sleeper.pid]


BREEDER = """
import os, time
for _ in range(4):
    os.fork()
end = time.time() + 30
while time.time() < end:
    if os.fork() == 0:
        time.sleep(0.2)
        os._exit(0)
    time.sleep(0.01)
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        pass
"""


def test_an_empty_group_is_pruned_and_one_with_groups_or_processes_is_not(home, sleeper):
    groups, name = home
    root, busy, parent = cgroup.join(name), cgroup.join(name, "busy"), cgroup.join(name, "parent")
    for group in (busy, f"{parent}/child"):
        groups.create(group)
    groups.add(busy, sleeper.pid)
    for group in (busy, parent, root):
        groups.prune(group)
    assert groups.children(root) == ["busy", "parent"]
    for group in (f"{parent}/child", parent):
        groups.prune(group)
    assert groups.children(root) == ["busy"]


def test_groups_can_be_made_while_somebody_else_prunes_those_above(home):
    groups, name = home
    stop = threading.Event()

    def prune():
        while not stop.is_set():
            groups.prune(cgroup.join(name))
            time.sleep(random.uniform(0, 0.002))  # far more often than anybody would

    pruner = threading.Thread(target=prune)
    pruner.start()
    try:
        for number in range(30):
            group = cgroup.join(name, f"g{number}")
            groups.create(group)
            assert groups.read(group).effective
            groups.delete(group)
    finally:
        stop.set()
        pruner.join()


def test_a_group_whose_processes_keep_forking_is_emptied(home):
    groups, name = home
    group = cgroup.join(name, "pod", "bomb")
    groups.create(group)
    process = subprocess.Popen(
        ["sh", "-c", 'read go; exec "$0" -c "$1"', sys.executable, BREEDER], stdin=subprocess.PIPE
    )
    groups.add(group, process.pid)
    process.stdin.write(b"go\n")
    process.stdin.close()
    deadline = time.monotonic() + 120
    while len(groups.pids(group)) < 10 and time.monotonic() < deadline:
        time.sleep(0.02)
    # Whoever waits for the children: here that is us, for the first of them.
    reaper = threading.Thread(target=process.wait)
    reaper.start()
    assert groups.empty(cgroup.join(name), 10) == []
    groups.delete(cgroup.join(name))
    reaper.join()
    assert not groups.exists(cgroup.join(name))


@pytest.fixture
def version2():
    """Real version 2 even where version 1 has cpu and cpuset: any controller will do that minds processes."""
    found = [mount for mount in mounts() if mount.version == 2 and os.access(mount.directory, os.W_OK)]
    there = found and (found[0].directory / "cgroup.controllers").read_text().split()
    controllers = [name for name in there if name not in ("cpu", "cpuset", "perf_event", "pids")]
    if not controllers:
        pytest.skip("needs a cgroup v2 hierarchy that may be written and has a controller such as memory")
    base = found[0].directory
    control = base / "cgroup.subtree_control"
    before = control.read_text().split()
    yield Groups2({controllers[0]: base}, KERNEL), f"test-{os.urandom(4).hex()}"
    if controllers[0] not in before:
        control.write_text(f"-{controllers[0]}")


def test_version_2_for_real_with_whatever_controller_it_has(version2, sleeper):
    groups, name = version2
    group = cgroup.join(name, "pod", "main")
    try:
        groups.create(group)
        groups.create(group)
        assert groups.children(cgroup.join(name)) == ["pod"]
        groups.add(group, sleeper.pid)
        assert groups.pids(cgroup.join(name)) == [sleeper.pid]
        with pytest.raises(cgroup.CgroupError, match="EBUSY: the group hands controllers to groups below"):
            groups.add(cgroup.join(name, "pod"), os.getpid())
        with pytest.raises(cgroup.CgroupError, match="EBUSY: processes live in this group"):
            groups.create(f"{group}/below")
        assert groups.kill(cgroup.join(name)) == [sleeper.pid]
        assert sleeper.wait(5) == -9
        assert groups.empty(cgroup.join(name)) == []
    finally:
        groups.empty(cgroup.join(name))
        groups.delete(cgroup.join(name))
        groups.prune(cgroup.OWN)
    assert not groups.exists(cgroup.join(name))
