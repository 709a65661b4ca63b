"""Settings overridden by the Node's labels and annotations, valid and invalid, and their file."""

import asyncio
import json
from dataclasses import replace

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corelane.agent import saved_state
from corelane.agent.allocation.events import ConfigChanged
from corelane.agent.reporting import AgentReporter
from corelane.agent.saved_state import NOTHING_SAVED, EffectiveSettings, SavedSettings
from corelane.cpuset import CPUSet
from corelane.embedded.pods import node_status
from corelane.embedded.pods.lifecycle import NodeCapacity, exceeded_capacity
from corelane.kube import keys
from corelane.machine.spec import parse_spec
from corelane.node import NodeConfigError, validate
from corelane.node.config import NodeConfig, PoolOptions
from corelane.node.ledger import new
from corelane.runtime.base import Capabilities
from corelane.workload import BindPolicy, NUMAPolicy, NUMAStrategy, PlacementSpec, PodQOS
from corelane.workload.request import ContainerRequest, QOSClass
from support.agent_world import APP, World, plan
from support.pool_asks import options

MACHINE = parse_spec("socket:2 core:4 smt:2")
POOLS = NodeConfig(policy="pools")


def started(record: SavedSettings = NOTHING_SAVED, profile: NodeConfig = POOLS) -> EffectiveSettings:
    return EffectiveSettings(profile, MACHINE, record)


def test_labels_and_annotations_override_the_configuration() -> None:
    profile = NodeConfig(policy="pools", pools=PoolOptions(strategy=NUMAStrategy.LEAST_ALLOCATED))
    node = started(profile=profile)
    labels = {
        keys.NODE_ALLOCATOR: "koordinator",
        keys.NODE_BIND_POLICY: "FullPCPUsOnly",
        keys.NODE_NUMA_STRATEGY: "MostAllocated",
        keys.NODE_NUMA_POLICY: "SingleNUMANode",
        "unrelated": "x",
    }
    system = '{"cpuset": "7", "cpusetExclusive": true}'
    assert node.update(MACHINE, labels, {keys.SYSTEM_QOS: system}) == []
    pools = node.config.pools
    assert (pools.allocator, pools.node_bind) == ("koordinator", BindPolicy.FULL_PCPUS)
    assert (pools.strategy, pools.numa) == (NUMAStrategy.MOST_ALLOCATED, NUMAPolicy.SINGLE_NUMA_NODE)
    assert pools.system == CPUSet([7])
    assert "unrelated" not in node.to_save.labels

    node.update(MACHINE, {}, {})
    assert node.config == profile


def test_an_amplified_node_has_more_allocatable_and_publishes_the_raw_amount() -> None:
    node = started()
    assert node_status.raw_allocatable(new(MACHINE, node.config)) is None
    node.update(MACHINE, {}, {keys.AMPLIFICATION: '{"cpu": 1.5}'})
    ledger = new(MACHINE, node.config)
    assert ledger.allocatable == 24_000
    assert json.loads(node_status.raw_allocatable(ledger) or "") == {"cpu": "16000m"}


@pytest.mark.parametrize(("apply", "withheld"), [("Default", 3), ("ReservedCPUsOnly", 0)])
def test_memory_is_withheld_unless_only_cpus_are(apply: str, withheld: int) -> None:
    node, machine = started(), parse_spec("core:4 mem:8G")
    told = {"resources": {"memory": "3Gi"}, "reservedCPUs": "3", "applyPolicy": apply}
    assert node.update(machine, {}, {keys.RESERVATION: json.dumps(told)}) == []
    ledger = new(machine, node.config)
    gib = 2**30
    assert node_status.allocatable_memory(ledger) == (8 - withheld) * gib
    identity = node_status.NodeIdentity("n", Capabilities(on_this_machine=False), "r", "", "")
    assert node_status.allocatable(identity, ledger)["memory"] == f"{(8 - withheld) << 20}Ki"
    for size, refused in ((8 - withheld, None), (8 - withheld + 1, "OutOfmemory")):
        asking = plan("p", ("a", APP, 0))
        request = replace(asking.request, containers=(ContainerRequest("a", memory_request=size * gib),))
        pod = replace(asking, request=request)
        refusal = exceeded_capacity(pod, (), NodeCapacity(memory=8 * gib), ledger.withheld_memory)
        assert (refusal and refusal.reason) == refused


@pytest.mark.parametrize(("apply", "offered"), [("Default", 14_000), ("ReservedCPUsOnly", 16_000)])
def test_withheld_cpus_are_in_no_pool_and_allocatable_only_with_reserved_cpus_only(
    apply: str, offered: int
) -> None:
    node = started()
    told = {"reservedCPUs": "0-1", "applyPolicy": apply}
    assert node.update(MACHINE, {}, {keys.RESERVATION: json.dumps(told)}) == []
    ledger = new(MACHINE, node.config)
    assert ledger.allocatable == offered
    assert not ledger.best_effort_pool & CPUSet([0, 1])


def test_the_policy_is_set_by_a_label() -> None:
    node = started()
    node.update(MACHINE, {keys.NODE_POLICY: "static"}, {})
    assert node.config.policy == "static"


def test_an_invalid_label_is_reported_once_and_its_last_value_stays() -> None:
    node = started()
    valid = {keys.NODE_NUMA_STRATEGY: "MostAllocated", keys.NODE_BIND_POLICY: "FullPCPUsOnly"}
    node.update(MACHINE, valid, {})
    broken = {keys.NODE_NUMA_STRATEGY: "Fullest", keys.NODE_BIND_POLICY: "SpreadByPCPUs"}
    (told,) = node.update(MACHINE, broken, {})
    assert keys.NODE_NUMA_STRATEGY in told
    assert "'Fullest': use MostAllocated" in told
    assert node.config.pools.strategy is NUMAStrategy.MOST_ALLOCATED
    assert node.config.pools.node_bind is BindPolicy.SPREAD_BY_PCPUS
    assert node.update(MACHINE, broken, {}) == []
    assert node.update(MACHINE, {}, {}) == []
    assert len(node.update(MACHINE, broken, {})) == 1
    assert node.config.pools.strategy is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (keys.RESERVATION, "{"),
        (keys.RESERVATION, '{"reservedCPUs": "a-b"}'),
        (keys.SYSTEM_QOS, '{"cpuset": 3}'),
        (keys.AMPLIFICATION, '{"cpu": "x"}'),
    ],
)
def test_an_invalid_annotation_is_named_and_changes_nothing(key: str, value: str) -> None:
    node = started()
    (told,) = node.update(MACHINE, {}, {key: value})
    assert key in told
    assert node.config == POOLS


def test_settings_invalid_on_the_machine_change_nothing() -> None:
    node = started()
    everything = {keys.SYSTEM_QOS: '{"cpuset": "0-15"}'}
    (told,) = node.update(MACHINE, {keys.NODE_ALLOCATOR: "koordinator"}, everything)
    assert "leave none of CPUs 0-15 to the shared pool" in told
    assert node.config == POOLS
    assert node.update(MACHINE, {keys.NODE_ALLOCATOR: "koordinator"}, everything) == []


def test_saved_settings_apply_at_the_next_start(tmp_path) -> None:
    node = started()
    assert not node.is_saved
    node.update(MACHINE, {keys.NODE_ALLOCATOR: "koordinator"}, {keys.RESERVATION: '{"reservedCPUs": "3"}'})
    path = tmp_path / saved_state.SETTINGS_FILE
    saved_state.save_settings(path, node.to_save)
    record, fault = saved_state.load_settings(path)
    assert fault == ""
    again = started(record)
    assert again.is_saved
    assert again.config == node.config
    assert again.config.pools.withheld == CPUSet([3])


def test_saved_settings_have_the_policy_of_the_last_run(tmp_path) -> None:
    assert saved_state.load_settings(tmp_path / "none.json") == (NOTHING_SAVED, "")
    path = tmp_path / saved_state.SETTINGS_FILE
    saved_state.save_settings(path, started().to_save)
    record, _ = saved_state.load_settings(path)
    assert record.policy == "pools"
    assert not started(record, NodeConfig(policy="static")).is_saved


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"policy": "pools", "labels": 3, "annotations": {}}', "\xff"]
)
def test_a_damaged_settings_file_is_named_and_counts_as_empty(tmp_path, text: str) -> None:
    path = tmp_path / saved_state.SETTINGS_FILE
    path.write_text(text, encoding="latin-1")
    record, fault = saved_state.load_settings(path)
    assert record == NOTHING_SAVED
    assert str(path) in fault


def test_a_settings_file_of_a_newer_version_is_not_replaced(tmp_path) -> None:
    path = tmp_path / saved_state.SETTINGS_FILE
    path.write_text(newer := '{"policy": "pools", "labels": {}, "annotations": {}, "version": 2}')
    record, fault = saved_state.load_settings(path)
    assert (record.policy, record.version) == ("", 2)
    assert fault == (
        f"{path}: settings file of version 2; this corelane reads and writes version 1: not replaced, "
        "settings read from the Node"
    )
    files = saved_state.StateFiles(tmp_path, POOLS, MACHINE, AgentReporter())
    asyncio.run(files.save_settings())
    assert path.read_text() == newer


def test_settings_that_could_not_be_saved_are_saved_later(tmp_path, monkeypatch) -> None:
    files = saved_state.StateFiles(tmp_path, POOLS, MACHINE, AgentReporter())
    monkeypatch.setattr(saved_state, "_RETRY_SETTINGS", 0.0)
    (tmp_path / saved_state.SETTINGS_FILE).mkdir()
    asyncio.run(files.save_settings())
    assert not files.settings.is_saved
    (tmp_path / saved_state.SETTINGS_FILE).rmdir()
    asyncio.run(files.save_settings())
    assert files.settings.is_saved
    assert saved_state.load_settings(tmp_path / saved_state.SETTINGS_FILE)[0].policy == "pools"


def test_saved_settings_invalid_on_the_machine_are_ignored() -> None:
    gone = SavedSettings("pools", {}, {keys.SYSTEM_QOS: '{"cpuset": "0-15"}'})
    assert started(gone).config == POOLS
    with pytest.raises(NodeConfigError):
        started(profile=NodeConfig(policy="pools", pools=PoolOptions(be_minimum=99)))


def test_changed_settings_move_pools_but_no_exclusive_cpus() -> None:
    world = World(cpus=6, pools=PoolOptions())
    world.add(plan("p", ("a", APP, 2000)))
    world.settle()
    before = world.core.ledger
    held = before.entries["p", "a"].cpus
    config = NodeConfig(policy="pools", reserved_count=1, pools=PoolOptions(withheld=held | CPUSet([5])))
    world.core.handle(ConfigChanged(config=config, **world.times()))
    after = world.core.ledger
    assert after.entries["p", "a"].cpus == held
    assert after.config == config
    assert after.shared_pool == before.shared_pool - CPUSet([5])


@pytest.mark.parametrize("policy", ["none", "static"])
def test_a_changed_policy_keeps_running_containers_in_place(policy) -> None:
    world = World(cpus=6, pools=PoolOptions(guaranteed_default=PodQOS.LSR))
    world.add(plan("p", ("a", APP, 2000)))
    world.settle()
    entry = world.core.ledger.entries["p", "a"]
    world.core.handle(ConfigChanged(config=NodeConfig(policy=policy, reserved_count=1), **world.times()))
    assert world.core.ledger.entries["p", "a"] == entry
    assert world.core.ledger.config.policy == policy


def processes(world: World) -> set[str]:
    return {one.id for one in world.live()}


CONFIGS = st.builds(
    lambda policy, count, pools: NodeConfig(policy=policy, reserved_count=count, pools=pools),
    st.sampled_from(["none", "static", "pools"]),
    st.integers(1, 3),
    options,
)


@given(st.lists(CONFIGS, min_size=1, max_size=4))
@hypothesis.settings(max_examples=15, deadline=None)
def test_any_settings_keep_exclusive_cpus_and_the_invariants(configs) -> None:
    world = World(cpus=10, pools=PoolOptions())
    for uid, placement_spec in (
        ("e", PlacementSpec(qos=PodQOS.LSE)),
        ("r", PlacementSpec(qos=PodQOS.LSR)),
        ("g", PlacementSpec()),
    ):
        world.add(plan(uid, ("a", APP, 2000), placement_spec=placement_spec))
    world.add(plan("s", ("a", APP, 100), qos=QOSClass.BURSTABLE))
    world.add(plan("b", ("a", APP, 0), qos=QOSClass.BEST_EFFORT))
    world.settle()
    held = {key: entry.cpus for key, entry in world.core.ledger.entries.items()}
    before = processes(world)
    for config in configs:
        world.feed(ConfigChanged(config=config, **world.times()))
        world.settle()
        ledger = world.core.ledger
        assert {key: entry.cpus for key, entry in ledger.entries.items()} == held
        assert ledger.config == config
        assert processes(world) == before
        assert validate(ledger) == []
        world.check()


def test_a_directory_in_place_of_the_settings_is_renamed(tmp_path) -> None:
    path = tmp_path / "settings.json"
    path.mkdir()
    files = saved_state.StateFiles(tmp_path, POOLS, MACHINE, AgentReporter())
    assert f"renamed to {tmp_path / 'settings.json.damaged-1'}" in files.settings_fault
    asyncio.run(files.save_settings())
    assert saved_state.load_settings(path) == (SavedSettings("pools", {}, {}), "")
