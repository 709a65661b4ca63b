"""A node's settings from a file: what each field means, and one line for each mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from corelane import node
from corelane.app import nodefile
from corelane.app.nodefile import KubeletConnection, NodeFileError, RuntimeSockets
from corelane.cpuset import CPUSet
from corelane.embedded.up import options
from corelane.embedded.up.options import UpOptions
from corelane.kube.translate import ledger_annotation
from corelane.machine.spec import parse_spec
from corelane.node import MemoryOptions, StaticOptions, TopologyOptions
from corelane.node.config import NodeConfig, PoolOptions
from corelane.settings import SettingsError
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


def test_static_takes_the_kubelets_names_and_values(tmp_path: Path) -> None:
    text = (
        "policy: static\nreservedCPUCount: 2\nstatic:\n  cpuManagerPolicyOptions: {full-pcpus-only: true}\n"
        "  topologyManagerPolicy: restricted\n  topologyManagerScope: pod\n"
    )
    found = load(tmp_path, text)
    assert (found.policy, found.reserved_count) == ("static", 2)
    assert found.options == StaticOptions(full_pcpus_only=True)
    assert found.numa == TopologyOptions("restricted", "pod", max_allowable_numa_nodes=8)


def test_zones_always_include_numa_nodes(tmp_path: Path) -> None:
    assert load(tmp_path, "").zones == {"node", "socket", "l3"}
    assert load(tmp_path, "zones: [socket, core]").zones == {"node", "socket", "core"}
    assert load(tmp_path, "zones: []").zones == {"node"}


@pytest.mark.parametrize(
    "text", ["", "# nothing\n", "policy: pools\n", "pools: {}\n", "pools: {numaPolicy: None}\n"]
)
def test_settings_that_are_not_given_are_defaults(tmp_path: Path, text: str) -> None:
    assert load(tmp_path, text) == NodeConfig(policy="pools")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("polcy: pools\n", "polcy: unknown field, value 'pools': use reservedCPUs, "),
        ("policy: dynamic\n", "policy: 'dynamic' is invalid: use none, static or pools"),
        ("policy: [pools]\n", "policy: ['pools'] is invalid: use"),
        ("allocator: best\n", "allocator: 'best' is invalid: use optimal or koordinator"),
        ("reservedCPUs: 0-x\n", "reservedCPUs: '0-x' is invalid: use a CPU list"),
        ("reservedCPUCount: 0\n", "reservedCPUCount: 0 is invalid: use an integer of 1 or more"),
        (
            "reservedCPUs: 0\nreservedCPUCount: 2\n",
            "reservedCPUs and reservedCPUCount are both set; set one of them",
        ),
        ("pools: 3\n", "pools: 3 is invalid: use a mapping with guaranteedDefault, "),
        ("pools: {beMinimum: -1}\n", "pools.beMinimum: -1 is invalid: use an integer of 0 or more"),
        ("pools: {beMinimum: true}\n", "pools.beMinimum: True is invalid"),
        ("pools: {be_minimum: 1}\n", "pools.be_minimum: unknown field, value 1: use guaranteedDefault, "),
        ("pools: {guaranteedDefault: LSE}\n", "pools.guaranteedDefault: 'LSE' is invalid: use LSR or LS"),
        ("pools: {strictRequests: yep}\n", "pools.strictRequests: 'yep' is invalid: use true or false"),
        ("pools: {demandProfile: [2, 0]}\n", "pools.demandProfile[1]: 0 is invalid"),
        (
            "static: {cpuManagerPolicyOptions: {fast: true}}\n",
            'static: unknown CPU Manager Policy option: "fast"',
        ),
        ("static: {topologyManagerPolicy: tight}\n", 'static: unknown policy: "tight"'),
        ("policy: pools\npolicy: none\n", "policy: is given twice"),
        ("pools: {beMinimum: 1, beMinimum: 2}\n", "beMinimum: is given twice"),
        ("zones: core\n", "zones: 'core' is invalid: use a list of node, socket, l3 and core"),
        ("zones: [die]\n", "zones[0]: 'die' is invalid: use node, socket, l3 or core"),
        ("devices: 2\n", "devices: 2 is invalid: use a mapping such as {example.com/nic: {0: 2, 1: 2}}"),
        (
            "devices: {nic: {0: 2}}\n",
            "devices: key: 'nic' is invalid: use a resource such as example.com/nic",
        ),
        (
            "devices: {kubernetes.io/x: {0: 2}}\n",
            "devices: key: 'kubernetes.io/x' is invalid: use a resource",
        ),
        ("devices: {example.com/nic: 3}\n", "devices.example.com/nic: 3 is invalid: use NUMA nodes with"),
        (
            "devices: {example.com/nic: {x: 1}}\n",
            "devices.example.com/nic: key: 'x' is invalid: use a NUMA node from 0 to 1023",
        ),
        ("devices: {example.com/nic: {0: -1}}\n", "devices.example.com/nic.0: -1 is invalid"),
        ("devices: {example.com/nic: {0: 999999999}}\n", "devices.example.com/nic.0: 999999999 is invalid"),
        (
            "devices: {example.com/nic: {9999: 1}}\n",
            "devices.example.com/nic: key: 9999 is invalid: use a NUMA node from 0 to 1023",
        ),
        (
            "devices: {example.com/nic: {0: [1]}}\n",
            "devices.example.com/nic.0: [1] is invalid: use a number of devices up to 4096, or names",
        ),
        (
            "devices: {example.com/nic: {0: [a], 1: [a]}}\n",
            "devices.example.com/nic: device 'a' is given twice; give it once",
        ),
        ("memoryManagerPolicy: static\n", "memoryManagerPolicy: 'static' is invalid: use None or Static"),
        (
            "reservedMemory: 1Gi\n",
            "reservedMemory: '1Gi' is invalid: use a list such as [{numaNode: 0, limits: ",
        ),
        (
            "reservedMemory: [{numaNode: 0, limits: {memory: x}}]\n",
            "reservedMemory[0].limits.memory: 'x' is invalid: use a size such as 1Gi",
        ),
        (
            "reservedMemory: [{numaNode: 0, limits: {memory: 1Gi}}]\n",
            "reservedMemory: memory manager policy None reserves no memory; set memoryManagerPolicy: Static",
        ),
        (
            "featureGates: {CPUManager: true}\n",
            "featureGates.CPUManager: unknown field, value True: use PodLevel",
        ),
        (
            "kubeletState: cpu_manager_state\n",
            "kubeletState: 'cpu_manager_state' is invalid: use an absolute path",
        ),
        ("reconcileSeconds: 0\n", "reconcileSeconds: 0 is invalid: use a number of seconds from 1 to 3600"),
        ("reconcileSeconds: often\n", "reconcileSeconds: 'often' is invalid: use a number of seconds"),
        ("runtime: containerd\n", "runtime: 'containerd' is invalid: use a mapping with endpoint and nri"),
        (
            "runtime: {endpoint: containerd.sock}\n",
            "runtime.endpoint: 'containerd.sock' is invalid: use a socket such as unix:///run/containerd/",
        ),
        (
            "runtime: {nri: true}\n",
            "runtime.nri: True is invalid: use an absolute path such as /var/run/nri/nri.sock, or off",
        ),
        ("runtime: {nri: nri.sock}\n", "runtime.nri: 'nri.sock' is invalid: use an absolute path"),
        (
            "kubelet: {address: 127.0.0.1}\n",
            "kubelet.address: '127.0.0.1' is invalid: use a URL such as https://127.0.0.1:10250",
        ),
        ("kubelet: {caFile: ca.crt}\n", "kubelet.caFile: 'ca.crt' is invalid: use an absolute path"),
        ("kubelet: {token: x}\n", "kubelet.token: unknown field, value 'x': use address, serverName, "),
        (
            "kubelet: {keyFile: /key.pem}\n",
            "kubelet.keyFile is set alone; set certificateFile and keyFile, or neither",
        ),
        (
            "kubeletState: /a\nkubelet: {stateFile: /b}\n",
            "kubeletState and kubelet.stateFile are both set; set one of them",
        ),
        ("simulated: {pools: {}}\n", "simulated.pools: unknown field, value {}: use reservedCPUs, "),
        ("- pools\n", "the file: ['pools'] is invalid: use a mapping with reservedCPUs, "),
        ("{\n", "not YAML: "),
    ],
)
def test_a_mistake_is_one_line_with_file_field_value_and_what_is_allowed(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(NodeFileError) as refused:
        load(tmp_path, text)
    assert str(refused.value).startswith(f"{tmp_path / 'node.yaml'}: {message}")
    assert "\n" not in str(refused.value)


def test_options_override_the_file(tmp_path: Path) -> None:
    path = tmp_path / "node.yaml"
    path.write_text("policy: static\nallocator: koordinator\nreservedCPUCount: 3\npools: {beMinimum: 2}\n")
    given = UpOptions(
        data_dir=tmp_path, node_config=path, policy="pools", allocator="optimal", reserved_cpus="1"
    )
    expected = NodeConfig(policy="pools", reserved=CPUSet([1]), pools=PoolOptions(be_minimum=2))
    assert options.settings(given) == expected
    assert options.settings(UpOptions(data_dir=tmp_path, node_config=path)).policy == "static"
    assert options.settings(UpOptions(data_dir=tmp_path)) == NodeConfig(policy="pools")


def test_the_reconcile_period_is_that_of_the_option_then_of_the_file_then_ten_seconds(tmp_path: Path) -> None:
    path = tmp_path / "node.yaml"
    path.write_text("reconcileSeconds: 2.5\n")
    assert options.reconcile_seconds(UpOptions(data_dir=tmp_path)) == 10
    assert options.reconcile_seconds(UpOptions(data_dir=tmp_path, node_config=path)) == 2.5
    given = UpOptions(data_dir=tmp_path, node_config=path, reconcile_seconds=3)
    assert options.reconcile_seconds(given) == 3


def test_an_allocator_requires_policy_pools() -> None:
    with pytest.raises(SettingsError, match="--allocator optimal requires policy pools"):
        options.settings(UpOptions(data_dir=Path("/nowhere"), policy="static", allocator="optimal"))


def test_a_setting_that_this_machine_cannot_satisfy_has_its_name_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "node.yaml"
    path.write_text("pools: {beMinimum: 99}\n")
    given = UpOptions(data_dir=tmp_path, node_config=path)
    with pytest.raises(SettingsError) as refused:
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


BESIDE_A_KUBELET = """
reconcileSeconds: 30
runtime: {endpoint: /run/crio/crio.sock, nri: off}
kubelet:
  address: https://10.0.0.7:10250
  serverName: node-1
  caFile: /etc/kubernetes/pki/ca.crt
  certificateFile: /etc/corelane/client.crt
  keyFile: /etc/corelane/client.key
  stateFile: /var/lib/kubelet/cpu_manager_state
  podResources: /run/pod-resources.sock
"""


def test_connections_of_an_agent_beside_a_kubelet_are_read(tmp_path: Path) -> None:
    path = tmp_path / "node.yaml"
    path.write_text(BESIDE_A_KUBELET)
    file = nodefile.read(path)
    assert file.reconcile_seconds == 30
    assert file.runtime == RuntimeSockets("/run/crio/crio.sock", None)
    assert file.kubelet == KubeletConnection(
        address="https://10.0.0.7:10250",
        server_name="node-1",
        ca_file=Path("/etc/kubernetes/pki/ca.crt"),
        certificate_file=Path("/etc/corelane/client.crt"),
        key_file=Path("/etc/corelane/client.key"),
        state_file=Path("/var/lib/kubelet/cpu_manager_state"),
        pod_resources=Path("/run/pod-resources.sock"),
    )
    assert file.kubelet_state == Path("/var/lib/kubelet/cpu_manager_state")


def test_connections_that_are_not_given_have_defaults(tmp_path: Path) -> None:
    path = tmp_path / "node.yaml"
    path.write_text("runtime: {}\n")
    file = nodefile.read(path)
    assert file.runtime == RuntimeSockets(
        "unix:///run/containerd/containerd.sock", Path("/var/run/nri/nri.sock")
    )
    assert (file.kubelet, file.kubelet_state, file.reconcile_seconds) == (KubeletConnection(), None, 10)


def test_memory_devices_and_gates_are_read(tmp_path: Path) -> None:
    config = load(tmp_path, RESOURCES)
    reserved = {0: {"memory": 1 << 30}, 1: {"memory": 512 << 20, "hugepages-1Gi": 1 << 30}}
    assert config.memory == MemoryOptions("Static", reserved)
    assert config.devices == {"example.com/nic": {"nic-0-0": 1, "eth2": 2, "eth3": 2}, "example.com/gpu": {}}
    assert config.pod_level
    assert nodefile.read(tmp_path / "node.yaml").kubelet_state == Path("/var/lib/kubelet/cpu_manager_state")


def test_simulated_nodes_have_their_own_settings_and_none_of_this_machine(tmp_path: Path) -> None:
    config = load(tmp_path, RESOURCES)
    given = UpOptions(data_dir=tmp_path, node_config=tmp_path / "node.yaml")
    theirs = options.simulated_settings(config, given)
    assert theirs.devices == {"example.com/nic": {"nic-0-0": 1, "nic-0-1": 1}}
    assert (theirs.reserved, theirs.memory, theirs.pod_level) == (CPUSet([1]), MemoryOptions(), True)
    assert options.kubelet_state(given) == Path("/var/lib/kubelet/cpu_manager_state")
    assert options.kubelet_state(UpOptions(data_dir=tmp_path)) is None
    assert dict(options.simulated_settings(config).devices) == {}


def test_a_device_of_a_missing_numa_node_is_an_error_with_its_name_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "node.yaml"
    path.write_text("devices: {example.com/nic: {7: 1}}\n")
    given = UpOptions(data_dir=tmp_path, node_config=path)
    with pytest.raises(SettingsError) as refused:
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
def test_memory_that_cannot_be_reserved_is_an_error_with_its_name_in_the_file(
    tmp_path: Path, said: str, told: str
) -> None:
    path = tmp_path / "node.yaml"
    path.write_text(f"memoryManagerPolicy: Static\nreservedMemory: {said}\n")
    given = UpOptions(data_dir=tmp_path, node_config=path)
    machine = parse_spec("socket:2 core:4 smt:2 mem:4Gi")
    with pytest.raises(SettingsError) as refused:
        options.check_settings(given, options.settings(given), machine)
    assert str(refused.value).startswith(f"{path}: {told}")


def test_cpu_lists_of_this_machine_do_not_hold_for_simulated_nodes(tmp_path: Path) -> None:
    config = options.simulated_settings(load(tmp_path, WHOLE))
    assert (config.reserved, config.pools.withheld, config.pools.system) == (None, CPUSet(), CPUSet())
    assert config.pools.guaranteed_default is PodQOS.LS


def test_settings_of_memory_can_be_published(tmp_path: Path) -> None:
    path = tmp_path / "node.yaml"
    path.write_text("memoryManagerPolicy: Static\nreservedMemory: [{limits: {memory: 1Gi}}]\n")
    state = node.new(MACHINE, nodefile.load(path))
    published = ledger_annotation.load(ledger_annotation.dump(state), MACHINE)
    assert published.config.memory.reserved == {0: {"memory": 1 << 30}}
