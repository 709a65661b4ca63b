"""`corelane agent run` as a process, on cgroup v2 and NUMA nodes, beside a kubelet and containerd with NRI.

Everything is read from the kernel's files and the runtime's records, past corelane's own code.
"""

import json
import random
import subprocess
import threading
from collections import defaultdict
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path

import pytest
from click.testing import CliRunner

from corelane.cli import main
from corelane.cpuset import CPUSet
from support import guest
from support.guest_node import GuestNode, Surroundings, field, wait

EACH = guest.CORES * guest.THREADS
NODES = [CPUSet(range(first, first + EACH)) for first in range(0, 4 * EACH, EACH)]
EVERYTHING = CPUSet(range(4 * EACH))
RESERVATION = "node.koordinator.sh/reservation"
SETTINGS = {
    "policy": "pools",
    "reservedCPUs": "0",
    "memoryManagerPolicy": "Static",
    "reservedMemory": [{"numaNode": 0, "limits": {"memory": "64Mi"}}],
}
KILLS = 4


@pytest.fixture(scope="module")
def node(lab, tmp_path_factory):
    home = tmp_path_factory.mktemp("agent")
    with Surroundings(home) as around:
        node = GuestNode(home, lab, around, SETTINGS)
        try:
            node.start()
            node.wait_ready()
            yield node
        finally:
            node.close()


@pytest.fixture(autouse=True)
def pods_end(node):
    seen = len(node.log.read_text())
    yield
    # Shown where the test fails.
    status = {key: value for key, value in node.status().items() if key not in ("writes", "kubelet")}
    print(json.dumps(status), node.log.read_text()[seen:][-8000:], sep="\n")
    node.end_all()


@pytest.fixture
def switch():
    """Switch CPUs off and on; all are on-line again afterwards."""

    def write(cpus, value):
        for cpu in cpus:
            Path(f"/sys/devices/system/cpu/cpu{cpu}/online").write_text(value)

    yield write
    write(EVERYTHING - CPUSet([0]), "1")


def numa_node(cpus):
    """The NUMA node that these CPUs lie on."""
    return next(number for number, there in enumerate(NODES) if cpus <= there)


def zone_cpus(node, number):
    """The CPUs of a NUMA node's zone in the NodeResourceTopology."""
    zone = next(zone for zone in node.topology()["zones"] if zone["name"] == f"node-{number}")
    return CPUSet.parse(zone["attributes"][0]["value"])


def wait_cpus(container, cpus):
    """Wait until a container's CPUs in effect are these."""
    wait(f"CPUs {cpus} for {container.pod.name}", lambda: container.cpus == cpus, last=lambda: container.cpus)


def wait_record(node, container):
    """Wait until containerd's record, its CRI status and runc's own have the CPUs that are in effect."""

    def recorded():
        state = json.loads(Path(f"/run/containerd/runc/k8s.io/{container.id}/state.json").read_text())
        return (
            CPUSet.parse(node.lab.recorded_cpu(container.id)["cpus"]),
            CPUSet.parse(state["config"]["cgroups"]["cpuset_cpus"]),
        )

    wait(
        f"records of {container.pod.name}",
        lambda: recorded() == (container.cpus, container.cpus),
        last=lambda: (recorded(), container.cpus),
    )


def assert_no_cpu_has_two_owners(node):
    """By the cgroups: no CPU of an exclusive container is another container's."""
    for one, other in combinations(node.running, 2):
        if one.exclusive or other.exclusive:
            assert one.cpus.isdisjoint(other.cpus), (one, one.cpus, other, other.cpus)


def assert_ledger_agrees(node):
    """The ledger on disk has the CPUs that the kernel has, of these containers and no others.

    It is written a moment after the status shows a release.
    """
    own = {one.pod.uid: str(one.cpus) for one in node.running if one.exclusive}

    def listed():
        ledger = json.loads((node.state_dir / "ledger.json").read_text())
        return {entry["uid"]: entry["cpus"] for entry in ledger["ledger"]["entries"] if entry["cpus"]}

    wait(f"the ledger on disk has {own}", lambda: listed() == own, last=listed)


@contextmanager
def never_moved(*containers):
    """The CPUs of these containers are the same all the time."""
    seen, ended = defaultdict(set), threading.Event()

    def sample():
        while not ended.wait(0.02):
            for one in containers:
                seen[one.pod.name].add(str(one.cpus))

    before = {one.pod.name: {str(one.cpus)} for one in containers}
    sampling = threading.Thread(target=sample)
    sampling.start()
    try:
        yield
    finally:
        ended.set()
        sampling.join()
    assert seen == before


def test_the_node_is_published_as_its_kernel_shows_it(node):
    listed = subprocess.run(["lscpu", "-p=CPU,SOCKET,NODE"], capture_output=True, text=True, check=True)
    rows = [tuple(map(int, line.split(","))) for line in listed.stdout.splitlines() if line[0] != "#"]
    zones = {zone["name"]: zone for zone in wait("the topology", node.topology)["zones"]}
    cpus, parents = defaultdict(list), {}
    for cpu, socket, number in rows:
        cpus[f"node-{number}"].append(cpu)
        cpus[f"socket-{socket}"].append(cpu)
        parents[f"node-{number}"] = f"socket-{socket}"
    assert len(rows) == 16
    assert len(parents) == 4
    assert {name: zone["attributes"] for name, zone in zones.items()} == {
        name: [{"name": "cpus", "value": str(CPUSet(there))}] for name, there in cpus.items()
    }
    for number in range(4):
        zone, files = zones[f"node-{number}"], Path(f"/sys/devices/system/node/node{number}")
        assert zone["parent"] == parents[zone["name"]]
        assert [cost["value"] for cost in zone["costs"]] == [
            *map(int, (files / "distance").read_text().split())
        ]
        capacity = {resource["name"]: resource["capacity"] for resource in zone["resources"]}
        assert capacity["cpu"] == str(EACH)
        assert (
            f"{capacity['memory'].removesuffix('Ki')} kB" in (files / "meminfo").read_text().splitlines()[0]
        )
    shown = CliRunner().invoke(main, ["agent", "status", f"--state-dir={node.state_dir}", "-o", "json"])
    status = json.loads(shown.stdout)
    assert (status["running"], status["mode"]["name"]) == (True, "owner")
    assert (status["runtime"]["enforcement"], status["nri"]["connected"]) == ("cgroup v2", True)


def test_a_container_has_its_cpus_and_memory_and_no_quota_at_its_first_instruction(node):
    """And containers of the shared pool have left these CPUs by then."""
    noise = node.run("noise")
    wait_cpus(noise, EVERYTHING)
    node.wait_confirmed()
    command = "cat /proc/self/status /mounted/cpuset.cpus.effective >/seen; exec sleep 600"
    server = node.run("server", 4, mount=noise.group, command=command)
    first = server.first()
    own = CPUSet.parse(field(first, "Cpus_allowed_list"))
    there = numa_node(own)
    assert len(own) == 4
    assert field(first, "Mems_allowed_list") == str(there)
    assert CPUSet.parse(first.split()[-1]) == EVERYTHING - own
    assert (server.cpus, server.allowed, server.mems) == (own, own, CPUSet([there]))
    assert noise.cpus == noise.allowed == EVERYTHING - own
    wait("no quota", lambda: server.quotas == ("max", "max"), last=lambda: server.quotas)
    node.wait_confirmed()
    wait("the condition is published", lambda: node.condition(server)[0] == "True")
    wait_record(node, server)
    wait_record(node, noise)
    assert_ledger_agrees(node)
    assert node.status()["overlap"]["count"] == 0


def test_containers_follow_when_pods_end_and_settings_change(node):
    noise, first, second = node.run("noise"), node.run("first", 4), node.run("second", 4)
    node.wait_confirmed()
    before = second.cpus
    assert numa_node(first.cpus) != numa_node(before)
    assert (first.mems, second.mems) == (CPUSet([numa_node(first.cpus)]), CPUSet([numa_node(before)]))
    assert noise.cpus == EVERYTHING - first.cpus - before
    with never_moved(second):
        node.end(first)
        wait_cpus(noise, EVERYTHING - before)
    reserved = before | CPUSet([14, 15])
    with never_moved(second):
        node.annotate(RESERVATION, json.dumps({"reservedCPUs": str(reserved)}))
        wait_cpus(noise, EVERYTHING - reserved)
        third = node.run("third", 4)
        node.wait_confirmed()
        assert third.cpus.isdisjoint(reserved)
        wait_cpus(noise, EVERYTHING - reserved - third.cpus)
        node.annotate(RESERVATION, None)
        wait_cpus(noise, EVERYTHING - second.cpus - third.cpus)
        node.wait_confirmed()
        wait_record(node, second)
        wait_record(node, noise)
        assert_ledger_agrees(node)


def test_drift_is_repaired_counted_and_reported(node):
    noise, server = node.run("noise"), node.run("server", 2)
    wait("no quota", lambda: server.quotas == ("max", "max"), last=lambda: server.quotas)
    node.wait_reconciled()
    own, there = server.cpus, server.mems
    drifts = node.status()["drift"]["count"]
    for group, name, value, count in (
        (server.group, "cpuset.cpus", "0-15", 1),
        (noise.group, "cpuset.cpus", str(own), 2),
        (server.group.parent, "cpuset.cpus", "14" if 14 not in own else "2", 3),
        (server.group, "cpuset.mems", "0-3", 3),
        (server.group, "cpu.max", "10000 100000", 3),
    ):
        (group / name).write_text(value)
        wait_cpus(server, own)
        wait_cpus(noise, EVERYTHING - own)
        wait("memory", lambda: server.mems == there, last=lambda: server.mems)
        wait("no quota", lambda: server.quotas == ("max", "max"), last=lambda: server.quotas)
        node.wait_reconciled()
        wait(
            f"drift {count}",
            lambda n=count: node.status()["drift"]["count"] == drifts + n,
            last=lambda: node.status()["drift"],
        )
    wait(
        "events",
        lambda: {"server", "noise"} <= {name for reason, name, _ in node.events() if "Drift" in reason},
        last=node.events,
    )
    wait_record(node, server)
    wait_record(node, noise)


def test_no_exclusive_container_moves_when_agent_and_containerd_are_killed(node):
    """The agent dies at random moments while pods come and go; then containerd dies beside it."""
    noise, old, older = node.run("noise"), node.run("old", 2), node.run("older", 4)
    node.wait_confirmed()
    with never_moved(old, older):
        for number in range(KILLS):
            victim = threading.Timer(random.uniform(0, 1.5), node.kill)
            victim.start()
            new = node.run(f"new-{number}", number % 3)
            if number % 2:
                node.end(new)
            victim.join()
            node.start()
            node.wait_ready()
            assert_no_cpu_has_two_owners(node)
            assert_ledger_agrees(node)
        for one in node.running[3:]:
            node.end(one)
        node.lab.kill_daemon()
        (noise.group / "cpuset.cpus").write_text("0-15")
        wait_cpus(noise, EVERYTHING - old.cpus - older.cpus)
        node.lab.start_daemon()
        node.wait_ready()
        last = node.run("last", 2)
        assert CPUSet.parse(field(last.first(), "Cpus_allowed_list")) == last.cpus
        node.wait_confirmed()
    assert_no_cpu_has_two_owners(node)
    assert_ledger_agrees(node)
    wait_record(node, noise)


def test_cpus_that_go_offline_are_taken_from_containers_and_come_back(node, switch):
    noise, server = node.run("noise"), node.run("server", 2)
    node.wait_confirmed()
    own, drifts = server.cpus, node.status()["drift"]["count"]
    there = numa_node(own)
    one, other = own
    switch([one], "0")
    wait_cpus(server, CPUSet([other]))
    wait_cpus(noise, EVERYTHING - own)
    node.wait_confirmed()
    wait("the zone is published", lambda: zone_cpus(node, there) == NODES[there] - CPUSet([one]))
    wait("an event", lambda: ("CPUsLost", "server") in {event[:2] for event in node.events()})
    switch([other], "0")
    wait_cpus(server, EVERYTHING - own)
    wait("the quota is back", lambda: server.quotas[0] == "200000", last=lambda: server.quotas)
    switch(own, "1")
    wait_cpus(server, own)
    wait_cpus(noise, EVERYTHING - own)
    wait("no quota", lambda: server.quotas == ("max", "max"), last=lambda: server.quotas)
    node.wait_confirmed()
    wait("the zone is published again", lambda: zone_cpus(node, there) == NODES[there])
    assert node.status()["drift"]["count"] == drifts
    assert_ledger_agrees(node)
    wait_record(node, server)
    wait_record(node, noise)
