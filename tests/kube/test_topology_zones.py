"""Devices in the zones of a NodeResourceTopology, as in the proposal's example."""

from corelane import node
from corelane.kube.translate.topology_zones import zones
from corelane.machine.spec import parse_spec
from corelane.workload.request import ContainerKind, ContainerRequest, PodRequest, QOSClass

NIC = "example.com/nic"


def test_the_zones_of_numa_nodes_have_the_devices_near_them() -> None:
    machine = parse_spec("socket:2 core:4 smt:2")
    config = node.NodeConfig(
        "pools", devices={NIC: {"a": 1, "b": 2, "c": 3, "nowhere": 0}, "example.com/gpu": {}}
    )
    one = ContainerRequest("x", ContainerKind.APP, 1000, 1000, devices={NIC: 1})
    state, decision = node.admit(
        node.new(machine, config), PodRequest("u", "ns", "p", QOSClass.GUARANTEED, (one,))
    )
    assert decision.admitted
    assert state.entries["u", "x"].devices == {NIC: ("a",)}
    told = {zone["name"]: zone.get("resources", []) for zone in zones(machine, state, {"node", "socket"})}
    nics = {name: [one for one in listed if one["name"] == NIC] for name, listed in told.items()}
    assert nics["node-0"] == [{"name": NIC, "capacity": "2", "allocatable": "2", "available": "1"}]
    assert nics["node-1"] == [{"name": NIC, "capacity": "2", "allocatable": "2", "available": "2"}]
    assert not nics["socket-0"]
    assert not [one for listed in told.values() for one in listed if one["name"] == "example.com/gpu"]
