"""Pods that can never fit do not delay one that can, and are not tried for nothing. On a virtual clock."""

from collections.abc import Iterable

import msgspec
import pytest
from msgspec.structs import replace

from corelane.kube.objects import NodeResourceTopology
from corelane.kube.pod import Pod
from corelane.scheduler.core import SchedulerCore
from corelane.scheduler.cycle import finalists
from corelane.scheduler.events import CycleDue, NodeChanged, PodChanged, TopologyChanged
from corelane.scheduler.instructions import Bind, Instruction
from support import objects
from support.pods import container, guaranteed, pod


class Counted:
    """A core with nodes, which counts attempts; each takes `seconds` of the clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, nodes: int = 3, seconds: float = 0.002) -> None:
        self.core, self.now, self.seconds, self.attempts = SchedulerCore(), 0.0, seconds, 0
        self.topologies: dict[str, NodeResourceTopology] = {}
        real = finalists.attempt

        def attempt(*args: object, **more: object) -> object:
            self.attempts += 1
            self.now += self.seconds
            return real(*args, **more)  # type: ignore[arg-type]

        monkeypatch.setattr(finalists, "attempt", attempt)
        for number in range(nodes):
            name = f"n{number}"
            self.core.handle(NodeChanged(0, None, objects.node(name, 8)))
            self.topologies[name] = objects.topology(name, objects.state("core:9", name))
            self.core.handle(TopologyChanged(0, None, self.topologies[name]))

    def come(self, pods: Iterable[Pod]) -> None:
        for one in pods:
            spec = replace(one.spec, scheduler_name=self.core.name)
            self.core.handle(PodChanged(self.now, None, replace(one, spec=spec)))

    def run(self, until: str = "") -> list[Instruction]:
        """Cycles until a pod is bound, or there is nothing to do."""
        done: list[Instruction] = []
        while self.core.ready(self.now):
            new = self.core.handle(CycleDue(self.now))
            done += new
            if any(isinstance(one, Bind) and one.pod.metadata.name == until for one in new):
                break
        return done


def hopeless(kind: str, count: int) -> Iterable[Pod]:
    for number in range(count):
        name = f"h{number}"
        if kind == "one shape":
            yield guaranteed(name, "500")
        elif kind == "CPUs":
            yield guaranteed(name, str(100 + number))
        elif kind == "memory":
            yield pod(name, container("x", f"memory={100 + number}Gi", ""))
        elif kind == "selectors":
            yield guaranteed(name, "2", node_selector={"zone": f"z{number}"})
        elif kind == "exclusive CPUs":
            yield guaranteed(
                name, "2", annotations={"scheduling.koordinator.sh/resource-spec": f'"{number}"'}
            )


@pytest.mark.parametrize("kind", ["one shape", "CPUs", "memory", "selectors", "exclusive CPUs"])
def test_ten_thousand_pods_that_never_fit_delay_the_last_by_less_than_a_second(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although an attempt takes 2 ms."""
    lab = Counted(monkeypatch)
    lab.come(hopeless(kind, 10_000 if kind == "one shape" else 3_000))
    lab.come([guaranteed("fits", "2")])
    lab.run("fits")
    assert lab.now < 1.0
    if kind == "one shape":
        lab.run()
        assert lab.attempts == 2


def test_an_identical_rewrite_of_a_topology_causes_no_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Counted(monkeypatch)
    lab.come(guaranteed(f"h{number}", str(100 + number)) for number in range(300))
    lab.run()
    before = lab.attempts
    old = lab.topologies["n1"]
    new = replace(old, metadata=replace(old.metadata, resource_version="99"))
    lab.core.handle(TopologyChanged(lab.now, old, new))
    lab.come([guaranteed("fits", "2")])
    lab.run("fits")
    assert lab.attempts == before + 1


def test_a_change_that_makes_room_wakes_the_pod_that_fits_and_not_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lab = Counted(monkeypatch)
    lab.come(guaranteed(f"h{number}", str(100 + number)) for number in range(300))
    lab.come([guaranteed("wide", "16")])
    lab.run()
    before = lab.attempts
    lab.core.handle(NodeChanged(lab.now, None, objects.node("big", 16)))
    lab.run()
    topology = objects.topology("big", objects.state("core:17", "big"))
    lab.core.handle(TopologyChanged(lab.now, None, topology))
    done = lab.run()
    assert [one.node for one in done if isinstance(one, Bind)] == ["big"]
    assert lab.attempts <= before + 2


def test_the_end_of_a_pod_on_a_small_node_wakes_one_that_it_kept_off_a_large_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lab = Counted(monkeypatch, nodes=0)
    zone = {"topology.kubernetes.io/zone": "z"}
    for name, cpus in (("small", 2), ("large", 16)):
        lab.core.handle(NodeChanged(0, None, objects.node(name, cpus, labels=zone)))
    apart = {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "topology.kubernetes.io/zone", "labelSelector": {"matchLabels": {"app": "db"}}}
        ]
    }
    wire = {"spec": {"affinity": {"podAntiAffinity": apart}}}
    rule = msgspec.json.decode(msgspec.json.encode(wire), type=Pod).spec.affinity
    first = pod("first", container("x", "cpu=1", ""), labels={"app": "db"})
    placed = replace(first, spec=replace(first.spec, node_name="small"))
    lab.core.handle(PodChanged(0, None, placed))
    wide = pod("wide", container("x", "cpu=8", ""), labels={"app": "db"})
    lab.come([replace(wide, spec=replace(wide.spec, affinity=rule))])
    assert not [one for one in lab.run() if isinstance(one, Bind)]
    lab.core.handle(PodChanged(lab.now, placed, None))
    assert [one.node for one in lab.run() if isinstance(one, Bind)] == ["large"]
