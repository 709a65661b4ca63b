"""A node's settings from a file: what each field means, and one line for each mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from corelane.app import nodefile
from corelane.app.nodefile import NodeFileError
from corelane.app.up import options
from corelane.app.up.options import OptionError, Options
from corelane.cpuset import CPUSet
from corelane.machine.spec import parse_spec
from corelane.node import MemoryOptions, NodeConfig, PoolOptions, StaticOptions, TopologyOptions
from corelane.workload import BindPolicy, NUMAPolicy, NUMAStrategy, PodQOS

MACHINE = parse_spec("socket:2 core:4 smt:2")

WHOLE = """
policy: pools
allocator: koordinator
reservedCPUs: 0,8
pools:
  guaranteedDefault: LS
  strictRequests: true
  beMinimum: 2
  isolatedCPUs: exclusive-only
  bindPolicy: SpreadByPCPUs
  nodeBindPolicy: FullPCPUsOnly
  numaStrategy: MostAllocated
  numaPolicy: SingleNUMANode
  distributeAsProposed: true
  withheldCPUs: 3
  systemQoSCPUs: 4-5
  systemQoSExclusive: false
  demandProfile: [4, 8]
"""


def load(tmp_path: Path, text: str) -> NodeConfig:
    path = tmp_path / "node.yaml"
    path.write_text(text)
    return nodefile.load(path)


def test_every_field_of_pools_is_read(tmp_path: Path) -> None:
    pools = PoolOptions(
        allocator="koordinator",
        guaranteed_default=PodQOS.LS,
        strict_requests=True,
        be_minimum=2,
        isolated_cpus="exclusive-only",
        bind=BindPolicy.SPREAD_BY_PCPUS,
        node_bind=BindPolicy.FULL_PCPUS,
        strategy=NUMAStrategy.MOST_ALLOCATED,
        as_proposed=True,
        numa=NUMAPolicy.SINGLE_NUMA_NODE,
        withheld=CPUSet([3]),
        system=CPUSet([4, 5]),
        system_exclusive=False,
        profile=(4, 8),
    )
    assert load(tmp_path, WHOLE) == NodeConfig(policy="pools", reserved=CPUSet([0, 8]), pools=pools)


def test_the_kubelets_own_names_hold_under_the_static_policy(tmp_path: Path) -> None:
    text = (
        "policy: static\nreservedCPUCount: 2\nstatic:\n  cpuManagerPolicyOptions: {full-pcpus-only: true}\n"
        "  topologyManagerPolicy: restricted\n  topologyManagerScope: pod\n"
    )
    found = load(tmp_path, text)
    assert (found.policy, found.reserved_count) == ("static", 2)
    assert found.options == StaticOptions(full_pcpus_only=True)
    assert found.numa == TopologyOptions("restricted", "pod", max_allowable_numa_nodes=8)


def test_zones_always_hold_numa_nodes(tmp_path: Path) -> None:
    assert load(tmp_path, "").zones == {"node", "socket", "l3"}
    assert load(tmp_path, "zones: [socket, core]").zones == {"node", "socket", "core"}
    assert load(tmp_path, "zones: []").zones == {"node"}


@pytest.mark.parametrize(
    "text", ["", "# nothing\n", "policy: pools\n", "pools: {}\n", "pools: {numaPolicy: None}\n"]
)
def test_what_is_not_said_is_as_by_default(tmp_path: Path, text: str) -> None:
    assert load(tmp_path, text) == NodeConfig(policy="pools")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("polcy: pools\n", "polcy: unknown, 'pools': use policy, allocator, reservedCPUs, "),
        ("policy: dynamic\n", "policy: 'dynamic' cannot be: use none, static or pools"),
        ("policy: [pools]\n", "policy: ['pools'] cannot be: use"),
        ("allocator: best\n", "allocator: 'best' cannot be: use optimal or koordinator"),
        ("reservedCPUs: 0-x\n", "reservedCPUs: '0-x' cannot be: use a CPU list"),
        ("reservedCPUCount: 0\n", "reservedCPUCount: 0 cannot be: use a whole number from 1"),
        ("reservedCPUs: 0\nreservedCPUCount: 2\n", "reservedCPUs and reservedCPUCount are two reservations"),
        ("pools: 3\n", "pools: 3 cannot be: use a mapping with guaranteedDefault, "),
        ("pools: {beMinimum: -1}\n", "pools.beMinimum: -1 cannot be: use a whole number from 0"),
        ("pools: {beMinimum: true}\n", "pools.beMinimum: True cannot be"),
        ("pools: {be_minimum: 1}\n", "pools.be_minimum: unknown, 1: use guaranteedDefault, "),
        ("pools: {guaranteedDefault: LSE}\n", "pools.guaranteedDefault: 'LSE' cannot be: use LSR or LS"),
        ("pools: {strictRequests: yep}\n", "pools.strictRequests: 'yep' cannot be: use true or false"),
        ("pools: {demandProfile: [2, 0]}\n", "pools.demandProfile[1]: 0 cannot be"),
        (
            "static: {cpuManagerPolicyOptions: {fast: true}}\n",
            'static: unknown CPU Manager Policy option: "fast"',
        ),
        ("static: {topologyManagerPolicy: tight}\n", 'static: unknown policy: "tight"'),
        ("policy: pools\npolicy: none\n", "policy: is given twice"),
        ("pools: {beMinimum: 1, beMinimum: 2}\n", "beMinimum: is given twice"),
        ("zones: core\n", "zones: 'core' cannot be: use a list of node, socket, l3 and core"),
        ("zones: [die]\n", "zones[0]: 'die' cannot be: use node, socket, l3 or core"),
        ("devices: 2\n", "devices: 2 cannot be: use a mapping such as {example.com/nic: {0: 2, 1: 2}}"),
        ("devices: {nic: {0: 2}}\n", "devices: 'nic' cannot be a resource: use one such as example.com/nic"),
        ("devices: {kubernetes.io/x: {0: 2}}\n", "devices: 'kubernetes.io/x' cannot be a resource"),
        ("devices: {example.com/nic: 3}\n", "devices.example.com/nic: 3 cannot be: use NUMA nodes with"),
        ("devices: {example.com/nic: {x: 1}}\n", "devices.example.com/nic: NUMA node: 'x' cannot be"),
        ("devices: {example.com/nic: {0: -1}}\n", "devices.example.com/nic.0: -1 cannot be"),
        ("devices: {example.com/nic: {0: 999999999}}\n", "devices.example.com/nic.0: 999999999 cannot be"),
        ("devices: {example.com/nic: {9999: 1}}\n", "devices.example.com/nic: NUMA node: 9999 cannot be"),
        ("devices: {example.com/nic: {0: [1]}}\n", "devices.example.com/nic.0: [1] cannot be: use names"),
        (
            "devices: {example.com/nic: {0: [a], 1: [a]}}\n",
            "devices.example.com/nic: has two devices 'a': name each once",
        ),
        ("memoryManagerPolicy: static\n", "memoryManagerPolicy: 'static' cannot be: use None or Static"),
        ("reservedMemory: 1Gi\n", "reservedMemory: is str, not a list"),
        (
            "reservedMemory: [{numaNode: 0, limits: {memory: x}}]\n",
            "reservedMemory[0].limits.memory: 'x' is no size such as 1Gi",
        ),
        (
            "reservedMemory: [{numaNode: 0, limits: {memory: 1Gi}}]\n",
            "reservedMemory: memory manager policy None reserves none: say memoryManagerPolicy: Static",
        ),
        ("featureGates: {CPUManager: true}\n", "featureGates: {'CPUManager': True} cannot be: use {PodLevel"),
        (
            "kubeletState: cpu_manager_state\n",
            "kubeletState: 'cpu_manager_state' cannot be: use the whole path",
        ),
        ("simulated: {pools: {}}\n", "simulated.pools: unknown, {}: use reservedCPUs, "),
        ("- pools\n", "the file: ['pools'] cannot be: use a mapping with policy, "),
        ("{\n", "not YAML: "),
    ],
)
def test_a_mistake_is_one_line_with_file_field_value_and_what_is_allowed(
    tmp_path: Path, text: str, told: str
) -> None:
    with pytest.raises(NodeFileError) as refused:
        load(tmp_path, text)
    assert str(refused.value).startswith(f"{tmp_path / 'node.yaml'}: {told}")
    assert "\n" not in str(refused.value)


def test_the_command_line_goes_before_the_file(tmp_path: Path) -> None:
    path = tmp_path / "node.yaml"
    path.write_text("policy: static\nallocator: koordinator\nreservedCPUCount: 3\npools: {beMinimum: 2}\n")
    given = Options(
        data_dir=tmp_path, node_config=path, policy="pools", allocator="optimal", reserved_cpus="1"
    )
    expected = NodeConfig(policy="pools", reserved=CPUSet([1]), pools=PoolOptions(be_minimum=2))
    assert options.settings(given) == expected
    assert options.settings(Options(data_dir=tmp_path, node_config=path)).policy == "static"
    assert options.settings(Options(data_dir=tmp_path)) == NodeConfig(policy="pools")


def test_an_allocator_is_no_matter_of_the_other_policies() -> None:
    with pytest.raises(OptionError, match="--allocator optimal counts under policy pools only"):
        options.settings(Options(data_dir=Path("/nowhere"), policy="static", allocator="optimal"))


def test_what_this_machine_cannot_honour_is_named_as_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "node.yaml"
    path.write_text("pools: {beMinimum: 99}\n")
    given = Options(data_dir=tmp_path, node_config=path)
    with pytest.raises(OptionError) as refused:
        options.check_settings(given, options.settings(given), MACHINE)
    assert str(refused.value).startswith(f"{path}: pools.beMinimum: 99 is not between 0 and 16")


RESOURCES = """
memoryManagerPolicy: Static
reservedMemory:
- {numaNode: 0, limits: {memory: 1Gi}}
- {numaNode: 1, limits: {memory: 512Mi, hugepages-1Gi: 1Gi}}
devices:
  example.com/nic: {0: 1, 1: [eth2, eth3]}
  example.com/gpu: {1: 0}
featureGates: {PodLevelResourceManagers: true}
kubeletState: /var/lib/kubelet/cpu_manager_state
simulated:
  reservedCPUs: 1
  devices: {example.com/nic: {0: 2}}
"""


def test_memory_devices_and_gates_are_read(tmp_path: Path) -> None:
    config = load(tmp_path, RESOURCES)
    reserved = {0: {"memory": 1 << 30}, 1: {"memory": 512 << 20, "hugepages-1Gi": 1 << 30}}
    assert config.memory == MemoryOptions("Static", reserved)
    assert config.devices == {"example.com/nic": {"nic-0-0": 1, "eth2": 2, "eth3": 2}, "example.com/gpu": {}}
    assert config.pod_level
    assert nodefile.read(tmp_path / "node.yaml").kubelet_state == Path("/var/lib/kubelet/cpu_manager_state")


def test_simulated_nodes_have_what_is_said_of_them_and_nothing_of_this_machine(tmp_path: Path) -> None:
    config = load(tmp_path, RESOURCES)
    given = Options(data_dir=tmp_path, node_config=tmp_path / "node.yaml")
    theirs = options.elsewhere(config, given)
    assert theirs.devices == {"example.com/nic": {"nic-0-0": 1, "nic-0-1": 1}}
    assert (theirs.reserved, theirs.memory, theirs.pod_level) == (CPUSet([1]), MemoryOptions(), True)
    assert options.kubelet_state(given) == Path("/var/lib/kubelet/cpu_manager_state")
    assert options.kubelet_state(Options(data_dir=tmp_path)) is None
    assert dict(options.elsewhere(config).devices) == {}


def test_a_device_near_a_numa_node_that_is_not_there_is_named_as_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "node.yaml"
    path.write_text("devices: {example.com/nic: {7: 1}}\n")
    given = Options(data_dir=tmp_path, node_config=path)
    with pytest.raises(OptionError) as refused:
        options.check_settings(given, options.settings(given), MACHINE, "of simulated nodes: ")
    assert str(refused.value) == (
        f"{path}: of simulated nodes: devices: example.com/nic: nic-7-0 is near NUMA node 7, "
        "but this machine has 0-1"
    )


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("[]", "reservedMemory: [memorymanager] you should specify the system reserved memory"),
        (
            "[{numaNode: 7, limits: {memory: 1Gi}}]",
            "reservedMemory: the reserved memory configuration references a NUMA node 7",
        ),
        (
            "[{numaNode: 1, limits: {memory: 5Gi}}]",
            "reservedMemory: NUMA node 1 has 4Gi of memory, of which 5Gi cannot be reserved",
        ),
        (
            "[{numaNode: 0, limits: {memory: 1Gi, hugepages-2Mi: 2Mi}}]",
            "reservedMemory: NUMA node 0 has 0 of hugepages-2Mi, of which 2Mi cannot be reserved",
        ),
    ],
)
def test_memory_that_cannot_be_reserved_is_named_as_in_the_file(tmp_path: Path, said: str, told: str) -> None:
    path = tmp_path / "node.yaml"
    path.write_text(f"memoryManagerPolicy: Static\nreservedMemory: {said}\n")
    given = Options(data_dir=tmp_path, node_config=path)
    machine = parse_spec("socket:2 core:4 smt:2 mem:4Gi")
    with pytest.raises(OptionError) as refused:
        options.check_settings(given, options.settings(given), machine)
    assert str(refused.value).startswith(f"{path}: {told}")


def test_lists_of_cpus_are_this_machines_and_not_a_simulated_ones(tmp_path: Path) -> None:
    config = options.elsewhere(load(tmp_path, WHOLE))
    assert (config.reserved, config.pools.withheld, config.pools.system) == (None, CPUSet(), CPUSet())
    assert config.pools.guaranteed_default is PodQOS.LS
