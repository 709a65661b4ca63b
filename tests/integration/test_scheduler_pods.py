"""What any pod expects of `corelane scheduler`, on the embedded server and on a real kube-apiserver."""

import asyncio
import shutil
import tempfile
from collections import Counter
from pathlib import Path

import pytest

from corelane.cpuset import CPUSet
from corelane.kube import keys, translate
from support import kubectl, scheduler_lab
from support.scheduled_cluster import assert_no_cpu_twice
from support.scheduling_story import ZONE, Story, run

pytestmark = pytest.mark.integration

BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
PODS = "/api/v1/namespaces/default/pods"
HOSTNAME = "kubernetes.io/hostname"


@pytest.fixture(scope="module", params=["embedded", "real"])
def server(request):
    home = Path(tempfile.mkdtemp(prefix="corelane-kp-"))
    try:
        with (scheduler_lab.embedded if request.param == "embedded" else scheduler_lab.real)(home) as made:
            yield made
    finally:
        shutil.rmtree(home, ignore_errors=True)


def test_pods_get_cpu_ids_by_annotation_and_none_goes_to_two(server, tmp_path):
    async def story(it: Story) -> None:
        await it.node("n1")
        await it.node("n2", policy="pools")
        it.scheduler()
        for number in range(10):
            await it.pod(f"p{number}", "2")
        pods = [await it.until(f"p{number}", lambda pod: bool(pod.spec.node_name)) for number in range(10)]
        assert assert_no_cpu_twice(pods) == 20
        assert all(pod.metadata.annotations[keys.SCHEDULED_BY] for pod in pods)
        assert not any(
            CPUSet([0]) & cpus for pod in pods for cpus in translate.request(pod).proposal.values()
        )

    run(server, tmp_path, story)


def test_a_pod_with_gates_waits_until_they_are_gone(server, tmp_path):
    async def story(it: Story) -> None:
        await it.node("n1")
        it.scheduler()
        await it.pod("gated", schedulingGates=[{"name": "example.com/quota"}])
        await it.pod("free")
        await it.placed("free")
        assert not (await it.get("gated")).spec.node_name
        await it.merge(f"{PODS}/gated", {"spec": {"schedulingGates": None}})
        await it.placed("gated")

    run(server, tmp_path, story)


async def priorities(it: Story) -> None:
    for name, value in (("high", 1000), ("low", 1)):
        made = {"metadata": {"name": name}, "value": value, "globalDefault": False}
        await it.post("/apis/scheduling.k8s.io/v1/priorityclasses", made)


def test_a_pod_of_high_priority_takes_the_place_of_what_frees_a_numa_node(server, tmp_path):
    async def story(it: Story) -> None:
        await priorities(it)
        await it.node("n1")
        it.scheduler()
        for number in range(3):
            await it.pod(f"low{number}", "4", priorityClassName="low")
            await it.placed(f"low{number}")
        await it.pod("high", "6", priorityClassName="high")
        assert await it.placed("high") == "n1"
        left = [pod for pod in [f"low{number}" for number in range(3)] if await exists(it, pod)]
        assert len(left) >= 1, "no more are evicted than needed"
        pods = [await it.get(name) for name in (*left, "high")]
        assert assert_no_cpu_twice(pods) == 6 + 4 * len(left)

    run(server, tmp_path, story)


async def exists(it: Story, name: str) -> bool:
    found = (await it.client.raw("GET", PODS)).decode()
    return f'"name":"{name}"' in found.replace(": ", ":")


def test_a_pod_that_never_preempts_waits(server, tmp_path):
    async def story(it: Story) -> None:
        await priorities(it)
        polite = {"metadata": {"name": "polite"}, "value": 1000, "preemptionPolicy": "Never"}
        await it.post("/apis/scheduling.k8s.io/v1/priorityclasses", polite)
        await it.node("n1")
        it.scheduler()
        await it.pod("low", "12", priorityClassName="low")
        await it.placed("low")
        await it.pod("waits", "8", priorityClassName="polite")
        await it.refused("waits")
        await asyncio.sleep(1)
        assert await exists(it, "low")
        await it.delete("low")
        await it.placed("waits")

    run(server, tmp_path, story)


def test_of_two_nodes_the_one_whose_pods_no_budget_protects_is_preempted(server, tmp_path):
    async def story(it: Story) -> None:
        await priorities(it)
        for name in ("n1", "n2"):
            await it.node(name)
        it.scheduler()
        for name, node in (("protected", "n1"), ("open", "n2")):
            await it.pod(name, "12", {"app": name}, priorityClassName="low", nodeSelector={HOSTNAME: node})
            await it.placed(name)
        spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "protected"}}}
        await it.post(BUDGETS, {"metadata": {"name": "b"}, "spec": spec})
        status = {"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}
        await it.merge(f"{BUDGETS}/b/status", {"status": {"observedGeneration": 1, **status}})
        await asyncio.sleep(1)  # The scheduler has the budget by then.
        await it.pod("high", "8", priorityClassName="high")
        assert await it.placed("high") == "n2"
        assert await exists(it, "protected")
        assert not await exists(it, "open")

    run(server, tmp_path, story)


def test_host_ports_are_used_once_on_a_node(server, tmp_path):
    async def story(it: Story) -> None:
        for name in ("n1", "n2"):
            await it.node(name)
        it.scheduler()
        port = {"containerPort": 80, "hostPort": 8080, "protocol": "TCP"}
        for name in ("a", "b", "c"):
            await it.pod(name, ports=[port])
        await it.pod("udp", ports=[port | {"protocol": "UDP"}])
        placed = [name for name in ("a", "b", "c") if await eventually_placed(it, name)]
        assert len(placed) == 2
        assert len({(await it.get(name)).spec.node_name for name in placed}) == 2
        await it.placed("udp")
        (waiting,) = {"a", "b", "c"} - set(placed)
        assert "node(s) didn't have free ports for the requested pod ports" in await it.refused(waiting)
        await it.delete(placed[0])
        await it.placed(waiting)

    run(server, tmp_path, story)


async def eventually_placed(it: Story, name: str) -> bool:
    """Wait until the scheduler has judged the pod."""

    def judged(pod):
        return pod.spec.node_name or any(one.type == "PodScheduled" for one in pod.status.conditions)

    return bool((await it.until(name, judged)).spec.node_name)


def affinity(kind: str, app: str, topology_key: str) -> dict:
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": topology_key}
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def test_affinity_and_anti_affinity_to_pods_hold_on_nodes_and_zones(server, tmp_path):
    async def story(it: Story) -> None:
        for name, zone in (("n1", "a"), ("n2", "a"), ("n3", "b")):
            await it.node(name, zone)
        it.scheduler()
        apart = affinity("podAntiAffinity", "db", HOSTNAME)
        for number in range(3):
            await it.pod(f"db{number}", "2", {"app": "db"}, affinity=apart)
        nodes = {await it.placed(f"db{number}") for number in range(3)}
        assert nodes == {"n1", "n2", "n3"}
        await it.pod("db3", "2", {"app": "db"}, affinity=apart)
        assert "node(s) didn't match pod anti-affinity rules" in await it.refused("db3")
        await it.pod("seed", "2", {"app": "cache"}, nodeSelector={HOSTNAME: "n3"})
        await it.placed("seed")
        await it.pod("near", "2", affinity=affinity("podAffinity", "cache", ZONE))
        assert await it.placed("near") == "n3"

    run(server, tmp_path, story)


def test_pods_spread_over_zones_within_the_skew(server, tmp_path):
    async def story(it: Story) -> None:
        for name, zone in (("n1", "a"), ("n2", "a"), ("n3", "b")):
            await it.node(name, zone)
        it.scheduler()
        spread = {
            "maxSkew": 1,
            "topologyKey": ZONE,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "web"}},
        }
        for number in range(8):
            await it.pod(f"web{number}", "1", {"app": "web"}, topologySpreadConstraints=[spread])
        nodes = Counter([await it.placed(f"web{number}") for number in range(8)])
        assert nodes["n1"] + nodes["n2"] == nodes["n3"] == 4

    run(server, tmp_path, story)


def test_taints_selectors_and_cordoned_nodes_are_honoured(server, tmp_path):
    async def story(it: Story) -> None:
        for name in ("n1", "n2", "n3"):
            await it.node(name)
        taint = {"key": "gpu", "value": "a", "effect": "NoSchedule"}
        await it.merge("/api/v1/nodes/n1", {"spec": {"taints": [taint]}})
        await it.merge("/api/v1/nodes/n2", {"spec": {"unschedulable": True}})
        it.scheduler()
        await it.pod("plain")
        assert await it.placed("plain") == "n3"
        gpu = {"key": "gpu", "operator": "Equal", "value": "a", "effect": "NoSchedule"}
        await it.pod("tolerates", tolerations=[gpu], nodeSelector={HOSTNAME: "n1"})
        assert await it.placed("tolerates") == "n1"
        await it.pod("cordoned", nodeSelector={HOSTNAME: "n2"})
        assert "1 node(s) were unschedulable" in await it.refused("cordoned")
        await it.merge("/api/v1/nodes/n2", {"spec": {"unschedulable": None}})
        assert await it.placed("cordoned") == "n2"

    run(server, tmp_path, story)


def test_a_scheduler_killed_in_the_middle_of_a_drain_leaves_nothing_twice(server, tmp_path):
    async def story(it: Story) -> None:
        for number in range(6):
            await it.node(f"n{number}")
        first = it.scheduler()
        creating = asyncio.gather(*(it.pod(f"p{number}", "2") for number in range(40)))
        while len(await bound(it)) < 10:
            await asyncio.sleep(0.02)
        first.program.process.kill()
        await creating
        it.scheduler()
        while len(pods := await bound(it)) < 40:
            await asyncio.sleep(0.1)
        assert assert_no_cpu_twice(pods) == 80

    run(server, tmp_path, story)


async def bound(it: Story) -> list:
    from corelane.kube.pod import Pod

    return [pod for pod in (await it.client.list(Pod)).items if pod.spec.node_name]


def test_describe_shows_where_a_pod_went_and_why_another_waits(server, tmp_path):
    if kubectl.find() is None:
        pytest.skip(kubectl.MISSING)

    async def story(it: Story) -> None:
        await it.node("n1")
        it.scheduler()
        await it.pod("placed")
        await it.pod("waits", "12")
        await it.placed("placed")
        await it.pod("huge", "64")
        await it.refused("huge")
        assert "Successfully assigned default/placed to n1" in await described(it, "placed")
        assert "0/1 nodes are available" in await described(it, "huge")

    run(server, tmp_path, story)


async def described(it: Story, name: str) -> str:
    """What `kubectl describe pod` prints, once it has events."""
    found = kubectl.find()
    assert found is not None
    kubeconfig = it.server.kubeconfig(it.home / "kubectl.kubeconfig")
    environment = {"KUBECONFIG": str(kubeconfig), "HOME": str(it.home), "PATH": "/usr/bin:/bin"}
    run_kubectl = kubectl.Kubectl(found[0], found[1], environment)
    while True:
        done = await asyncio.to_thread(run_kubectl, "-n", "default", "describe", "pod", name)
        if "Events:" in done.stdout and "<none>" not in done.stdout.partition("Events:")[2]:
            return done.stdout
        await asyncio.sleep(0.2)
