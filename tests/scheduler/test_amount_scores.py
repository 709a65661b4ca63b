"""Scores by amounts: pods without requests count too, so that no node gets all of them."""

from collections import Counter

from msgspec.structs import replace

from corelane.kube.pod import Pod
from corelane.scheduler.core import SchedulerCore
from corelane.scheduler.events import CycleDue, NodeChanged, PodChanged
from corelane.scheduler.instructions import Bind
from support.objects import node
from support.pods import container, guaranteed, pod


def placed(core: SchedulerCore, one: Pod) -> str:
    core.handle(PodChanged(0, None, replace(one, spec=replace(one.spec, scheduler_name=core.name))))
    (bind,) = [done for done in core.handle(CycleDue(0)) if isinstance(done, Bind)]
    return bind.node


def test_pods_without_requests_go_to_busier_nodes_too() -> None:
    """kube-scheduler takes each container without requests to use 100m of CPU and 200 MiB of memory."""
    core = SchedulerCore()
    for name in ("n1", "n2", "n3"):
        core.handle(NodeChanged(0, None, node(name, 16)))
    busy = guaranteed("busy", "1500m", memory="3Gi")
    core.handle(PodChanged(0, None, replace(busy, spec=replace(busy.spec, node_name="n1"))))
    where = Counter(placed(core, pod(f"p{number}", container("main"))) for number in range(60))
    assert abs(where["n2"] - where["n3"]) <= 1
    assert 5 <= where["n1"] < where["n2"]


def test_what_pods_without_requests_count_leaves_with_them() -> None:
    core = SchedulerCore()
    core.handle(NodeChanged(0, None, node("n1", 16)))
    info = core.cluster.get("n1")
    assert info is not None
    pods = [
        replace(one, spec=replace(one.spec, node_name="n1"))
        for one in (pod("p", container("main")), guaranteed("q", "2"))
    ]
    for one in pods:
        core.handle(PodChanged(0, None, one))
    assert core.cluster.columns.scored[info.row, 0] == 2100
    assert info.requested["cpu"] == 2000
    for one in pods:
        core.handle(PodChanged(0, one, None))
    assert not core.cluster.columns.scored[info.row].any()
