"""A kubelet with static CPU manager refuses no pod that the replay placed, however late its reports are."""

import json
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from corelane import node as nodes
from corelane.cpuset import CPUSet
from corelane.kube import keys, translate
from corelane.kube.objects import NodeResourceTopology
from corelane.kube.pod import Pod
from corelane.machine.spec import parse_spec
from corelane.node import StaticOptions, TopologyOptions
from corelane.node.config import NodeConfig
from corelane.node.ledger import NodeState
from corelane.scheduler.core import SchedulerCore
from corelane.scheduler.events import BindSucceeded, CycleDue, NodeChanged, PodChanged, TopologyChanged
from corelane.scheduler.instructions import Bind
from support import objects
from support.pods import container, pod

MACHINE = parse_spec("socket:2 numa:1 core:4 smt:2", name="n")
WORDS = {
    ("none", "container"): "None",
    ("best-effort", "pod"): "BestEffortPodLevel",
    ("restricted", "container"): "RestrictedContainerLevel",
    ("single-numa-node", "container"): "SingleNUMANodeContainerLevel",
    ("single-numa-node", "pod"): "SingleNUMANodePodLevel",
}


class KubeletLab:
    """A kubelet that admits what is bound, and a scheduler that knows it by reports only."""

    def __init__(self, options: dict[str, str], policy: tuple[str, str]) -> None:
        static, manager = StaticOptions.parse(options), TopologyOptions(*policy)  # type: ignore[arg-type]
        config = NodeConfig("static", CPUSet([0]), options=static, numa=manager, exact=True)
        self.kubelet: NodeState = nodes.new(MACHINE, config)
        self.options, self.word = options, WORDS[policy]
        self.core = SchedulerCore()
        self.pods: dict[str, Pod] = {}
        self.now = 0.0
        self.bound = 0
        self.core.handle(NodeChanged(0, None, objects.node("n", 16, memory="64Gi")))
        self.report()

    def report(self) -> None:
        masks: dict[str, int] = {}
        for entry in self.kubelet.entries.values():
            masks[entry.uid] = masks.get(entry.uid, 0) | (entry.cpus.mask if entry.exclusive else 0)
        pods = {uid: str(CPUSet.from_mask(mask)) for uid, mask in masks.items() if mask}
        allocs = [{"uid": uid, "cpuset": cpus, "managedByKubelet": True} for uid, cpus in pods.items()]
        policy = {"policy": "static", "options": self.options, "reservedCPUs": "0"}
        body = translate.topology(MACHINE, "n", nodes.new(MACHINE, NodeConfig("pools")))
        annotations = {
            keys.CPU_TOPOLOGY: body["metadata"]["annotations"][keys.CPU_TOPOLOGY],
            keys.CPU_MANAGER_POLICY: json.dumps(policy),
            keys.POD_CPU_ALLOCS: json.dumps(allocs),
        }
        meta = {"name": "n", "annotations": annotations}
        obj = {"metadata": meta, "zones": body["zones"], "topologyPolicies": [self.word]}
        self.core.handle(TopologyChanged(self.now, None, msgspec.convert(obj, NodeResourceTopology)))

    def place(self, name: str, sizes: Sequence[int]) -> None:
        containers = (container(str(i), f"cpu={size} memory=1Gi") for i, size in enumerate(sizes))
        self.seen(pod(name, *containers, scheduler_name="corelane-scheduler"))
        self.now += 1
        for one in self.core.handle(CycleDue(self.now)):
            if isinstance(one, Bind):
                self.core.handle(BindSucceeded(self.now, one.pod.metadata.uid))
                assert not one.assignments
                old = self.pods[one.pod.metadata.uid]
                started = replace(old.status, start_time=f"2026-11-28T01:00:{self.bound:02}Z")
                self.seen(replace(old, spec=replace(old.spec, node_name="n"), status=started))
                self.kubelet, decision = nodes.admit(self.kubelet, translate.request(old))
                assert decision.admitted, decision.message
                self.bound += 1

    def restart(self) -> None:
        """Start another scheduler: pods are listed by name, and the CPUs of none are reported."""
        self.core = SchedulerCore()
        self.core.handle(NodeChanged(0, None, objects.node("n", 16, memory="64Gi")))
        for one in sorted(self.pods.values(), key=lambda one: one.metadata.name):
            self.core.handle(PodChanged(self.now, None, one))
        self.kubelet, before = nodes.new(MACHINE, self.kubelet.config), self.kubelet
        self.report()
        self.kubelet = before

    def seen(self, new: Pod) -> None:
        self.core.handle(PodChanged(self.now, self.pods.get(new.metadata.uid), new))
        self.pods[new.metadata.uid] = new

    def delete(self, uid: str) -> None:
        gone = self.pods.pop(uid)
        self.kubelet = nodes.release(self.kubelet, uid)
        self.core.handle(PodChanged(self.now, gone, None))


OPTIONS: list[dict[str, str]] = [{}, {"full-pcpus-only": "true"}, {"distribute-cpus-across-numa": "true"}]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("place"), st.lists(st.integers(1, 6), min_size=1, max_size=2)),
        st.tuples(st.just("delete"), st.integers(0, 20)),
        st.tuples(st.just("report"), st.none()),
    ),
    max_size=25,
)


@pytest.mark.parametrize("policy", WORDS)
@settings(max_examples=40, deadline=None)
@given(
    steps=STEPS,
    options=st.sampled_from(OPTIONS),
)
def test_a_kubelet_refuses_no_pod_that_the_replay_placed(policy, steps, options) -> None:
    lab = KubeletLab(options, policy)
    for number, (what, value) in enumerate(steps):
        if what == "place":
            lab.place(f"p{number}", value)
        elif what == "report":
            lab.report()
        elif lab.pods:
            lab.delete(sorted(lab.pods)[value % len(lab.pods)])


def test_the_replay_fills_the_node() -> None:
    lab = KubeletLab({}, ("single-numa-node", "container"))
    for number in range(9):
        lab.place(f"p{number}", [2])
    assert lab.bound == 7


def test_after_a_restart_pods_are_replayed_in_the_order_in_which_they_were_started() -> None:
    lab = KubeletLab({}, ("single-numa-node", "container"))
    lab.place("b", [4])
    lab.place("a", [5])
    lab.restart()
    lab.place("c", [4])
    assert lab.bound == 2, "3 CPUs are free on each NUMA node"
    lab.place("d", [3])
    assert lab.bound == 3


def test_a_pod_stays_where_it_was_foreseen_though_an_earlier_one_ends_unreported() -> None:
    lab = KubeletLab({}, ("single-numa-node", "container"))
    lab.place("a", [7])
    lab.place("b", [5])
    lab.delete("uid-a")
    lab.place("c", [8])
    assert lab.bound == 2
    lab.place("d", [7])
    assert lab.bound == 3
