"""`corelane agent run` and containerd restarted beside each other; two agents at once; cpusets changed."""

import json
import os
import subprocess
import sys
import time

import pytest

from corelane.cpuset import CPUSet
from support import containerd
from support.crash_lab import PATIENCE, ROOT, CrashLab, RunningPod, crash_lab

pytestmark = pytest.mark.system


@pytest.fixture(params=containerd.DIRECTORIES)
def lab(request, tmp_path):
    (tmp_path / "cd").mkdir()
    with containerd.running(tmp_path / "cd", request.param) as runtime, crash_lab(runtime, tmp_path) as lab:
        if len(lab.machine.usable) < 2:
            pytest.skip("needs two CPUs")
        yield lab


def settled(lab: CrashLab) -> None:
    """Everything agrees, and nothing was wrong on the way there."""
    lab.converge()
    assert lab.faults() == []


def status(lab: CrashLab) -> dict:
    """What `corelane agent status` shows."""
    command = [sys.executable, "-m", "corelane", "agent", "status", f"--state-dir={lab.state}", "-o", "json"]
    environment = os.environ | {"PYTHONPATH": f"{ROOT}/src"}
    done = subprocess.run(command, env=environment, capture_output=True, timeout=PATIENCE, check=True)
    return json.loads(done.stdout)


def test_containerd_agent_and_both_are_restarted_while_pods_come_and_go(lab):
    shared = lab.add("shared")
    lab.start_agent()
    own = lab.add("pair")
    settled(lab)
    for how in ("kill_daemon", "stop_daemon"):
        getattr(lab.runtime, how)()
        lab.drift(shared.containers["app"], lab.machine.usable)
        lab.drift(own.containers["app"], lab.machine.usable)
        lab.until_kernel(own, "app", lab.owned(own))  # the kernel needs no runtime
        lab.runtime.start_daemon()
        lab.add("shared")
        settled(lab)
    for kill in (True, False):
        lab.stop_agent(kill=kill)
        lab.restart(own, "app")
        lab.delete(next(pod for pod in lab.pods.values() if pod is not shared and pod.shape == "shared"))
        lab.start_agent()
        settled(lab)
    lab.kill_agent()
    lab.runtime.kill_daemon()
    lab.start_agent()
    time.sleep(1)
    lab.runtime.start_daemon()
    lab.delete(own, object_first=True)
    lab.add("exclusive")
    settled(lab)


def test_a_cpuset_changed_behind_its_back_is_repaired_counted_and_evented(lab):
    shared = lab.add("shared")
    lab.start_agent()
    own = lab.add("exclusive")
    settled(lab)
    cpus, everything = lab.owned(own), lab.machine.usable
    before = status(lab)["drift"]["count"]
    lab.drift(own.containers["app"], everything)
    lab.until_kernel(own, "app", cpus)
    lab.drift(shared.containers["app"], everything)
    lab.until_kernel(shared, "app", everything - cpus)
    # An update with the old set, as of a kubelet or `ctr` that knows nothing of corelane.
    for pod, right in ((own, cpus), (shared, everything - cpus)):
        lab.update(pod.containers["app"], cpus=str(everything), shares=300)
        lab.until_kernel(pod, "app", right)
    narrow_pod(lab, own, everything - cpus)
    lab.until_kernel(own, "app", cpus)
    settled(lab)
    assert status(lab)["drift"]["count"] >= before + 2
    assert lab.published("CPUsDrifted") >= 2


def narrow_pod(lab: CrashLab, pod: RunningPod, cpus: CPUSet) -> None:
    """Change a pod's cgroup, and all below it; in version 1 no group may have more than the one above."""
    group = lab.group(pod.containers["app"]).parent
    with lab.moving(pod.containers["app"]):
        for _ in range(20):  # the agent repairs the groups below meanwhile
            try:
                for path in (*(path for path in group.iterdir() if path.is_dir()), group):
                    (path / "cpuset.cpus").write_text(str(cpus))
            except OSError:
                continue
            return
    raise AssertionError(f"{group} cannot be narrowed to {cpus}")


def test_a_second_agent_waits_and_takes_over_before_any_container_is_unpinned(lab):
    """A roll-out: the second one starts while the first one works, and then the first one ends."""
    lab.add("shared")
    agents = [lab.start_agent()]
    own = lab.add("exclusive")
    settled(lab)
    for end in ("terminate", "kill"):
        agents.append(lab.start_agent())
        lab.wait_log("is locked by process", len(agents) - 1)
        assert not [line for line in lab.log() if line["pid"] == agents[-1].pid], "it does nothing yet"
        began = time.monotonic()
        getattr(agents[-2], end)()
        agents[-2].wait(PATIENCE)
        lab.delete(own)
        own = lab.add("exclusive")
        lab.converge()
        took = time.monotonic() - began
        print(f"containerd {lab.runtime.release}, {end}: a pod made meanwhile is pinned after {took:.2f} s")
    settled(lab)
