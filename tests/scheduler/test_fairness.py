"""Pods that can never fit do not delay one that can, and are not tried for nothing. On a virtual clock."""

from collections.abc import Iterable

import msgspec
import pytest
from msgspec.structs import replace

from corelane.kube.objects import Node
from corelane.kube.pod import Pod
from corelane.scheduler.cycle import finalists
from corelane.scheduler.events import CycleDue, TopologyChanged
from support import objects
from support.core_lab import CoreLab, names
from support.pods import container, guaranteed, pod


class Counted(CoreLab):
    """Three nodes, and the number of attempts; each takes 2 ms of the clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *nodes: Node | str) -> None:
        super().__init__()
        self.has(*(nodes or ("n0", "n1", "n2")), spec="" if nodes else "core:9")
        self.attempts = 0
        real = finalists.attempt

        def attempt(*args: object, **more: object) -> object:
            self.attempts += 1
            self.now += 0.002
            return real(*args, **more)  # type: ignore[arg-type]

        monkeypatch.setattr(finalists, "attempt", attempt)

    def run_until(self, name: str) -> None:
        """Cycles until a pod is bound, or there is nothing to do."""
        while self.core.ready(self.now) and name not in names(self.tell(CycleDue(self.now))):
            pass


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
    lab.add(*hopeless(kind, 10_000 if kind == "one shape" else 3_000))
    lab.add(guaranteed("fits", "2"))
    lab.run_until("fits")
    assert lab.now < 1.0
    if kind == "one shape":
        lab.run()
        assert lab.attempts == 2


def test_an_identical_rewrite_of_a_topology_causes_no_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Counted(monkeypatch)
    lab.add(*(guaranteed(f"h{number}", str(100 + number)) for number in range(300)))
    lab.run()
    before = lab.attempts
    old = objects.topology("n1", lab.agents["n1"])
    new = replace(old, metadata=replace(old.metadata, resource_version="99"))
    lab.tell(TopologyChanged(lab.now, old, new))
    lab.add(guaranteed("fits", "2"))
    lab.run_until("fits")
    assert lab.attempts == before + 1


def test_a_change_that_makes_room_wakes_the_pod_that_fits_and_not_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lab = Counted(monkeypatch)
    lab.add(*(guaranteed(f"h{number}", str(100 + number)) for number in range(300)))
    lab.add(guaranteed("wide", "16"))
    lab.run()
    before = lab.attempts
    lab.has(objects.node("big", 16))
    lab.run()
    lab.publish("big", objects.state("core:17", "big"))
    assert lab.bound() == ["big"]
    assert lab.attempts <= before + 2


def test_the_end_of_a_pod_on_a_small_node_wakes_one_that_it_kept_off_a_large_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    zone = {"topology.kubernetes.io/zone": "z"}
    sizes = (("small", 2), ("large", 16))
    lab = Counted(monkeypatch, *(objects.node(name, cpus, labels=zone) for name, cpus in sizes))
    apart = {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "topology.kubernetes.io/zone", "labelSelector": {"matchLabels": {"app": "db"}}}
        ]
    }
    wire = {"spec": {"affinity": {"podAntiAffinity": apart}}}
    rule = msgspec.json.decode(msgspec.json.encode(wire), type=Pod).spec.affinity
    first = pod("first", container("x", "cpu=1", ""), labels={"app": "db"})
    placed = lab.on("small", first)
    assert not lab.bound(pod("wide", container("x", "cpu=8", ""), labels={"app": "db"}, affinity=rule))
    lab.delete(placed)
    assert lab.bound() == ["large"]
