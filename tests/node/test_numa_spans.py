"""How many NUMA nodes a pod lies over: by container or by pod, with its memory and devices."""

from dataclasses import replace

from corelane import node
from corelane.machine.spec import parse_spec
from corelane.node import MemoryOptions, TopologyOptions
from corelane.node.config import NodeConfig
from corelane.node.ledger import NodeState, latest_pod_spans
from support.node_asks import container, pod

TWO = parse_spec("socket:2 numa:1 core:4 smt:1 memory:8Gi", name="two")


def after(config: NodeConfig, *sizes: int, devices: int = 0) -> NodeState:
    containers = [container(str(index), 1000 * size) for index, size in enumerate(sizes)]
    if devices:
        containers = [replace(one, devices={"vendor/nic": devices}) for one in containers]
    state, decision = node.admit(node.new(TWO, config), pod("p", *containers))
    assert decision.admitted
    return state


def test_each_container_counts_where_the_node_aligns_containers() -> None:
    config = NodeConfig("static", reserved_count=1, numa=TopologyOptions("best-effort"))
    assert latest_pod_spans(after(config, 2, 5)) == (1, 2)
    assert latest_pod_spans(after(config, 3, 4)) == (1, 1)


def test_the_pod_counts_as_a_whole_where_the_node_aligns_pods() -> None:
    config = NodeConfig("static", reserved_count=1, numa=TopologyOptions("best-effort", "pod"))
    assert latest_pod_spans(after(config, 3, 4)) == (2,)
    assert latest_pod_spans(after(config, 1, 2)) == (1,)


def test_devices_and_memory_count_beside_cpus() -> None:
    near = {"vendor/nic": {"a": 0b01, "b": 0b10}}
    config = NodeConfig("static", reserved_count=1, numa=TopologyOptions("best-effort"), devices=near)
    assert latest_pod_spans(after(config, 2, devices=1)) == (1,)
    assert latest_pod_spans(after(config, 2, devices=2)) == (2,)
    memory = MemoryOptions("Static", {0: {"memory": 7 << 30}, 1: {"memory": 1 << 30}})
    config = replace(config, devices={}, memory=memory)
    assert latest_pod_spans(after(config, 2)) == (1,)


def test_a_pod_in_the_shared_pool_lies_nowhere() -> None:
    assert latest_pod_spans(node.new(TWO)) == ()
