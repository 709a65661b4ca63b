"""The manifests in `examples/stories/`: each shows what its header promises, on the machine named there."""

from __future__ import annotations

import functools
import json
import operator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from click.testing import CliRunner

from corelane.app import nodefile
from corelane.cli import main
from corelane.cpuset import CPUSet
from corelane.kube import translate
from corelane.kube.translate import node_labels
from corelane.kube.translate.node_labels import KubeletSettings
from corelane.machine.spec import parse_spec
from corelane.node import StaticOptions, admit
from corelane.node.config import AllocatorName, NodeConfig, PoolOptions
from corelane.node.entries import Entry, Origin, Sharing
from corelane.node.ledger import NodeState, new, release, with_entries
from corelane.node.manager_options import TopologyOptions
from corelane.workload import NUMAStrategy
from support import objects, stories
from support.scheduler_faults import FaultyWorld

KUBELET = KubeletSettings("static", {"full-pcpus-only": "true", "distribute-cpus-across-numa": "true"})


def placed(name: str, state: NodeState | None = None) -> stories.Placed:
    return stories.place(state or stories.pools(name), *stories.pods(name))


@pytest.mark.parametrize("name", stories.names())
def test_every_story_can_be_read_and_says_how_to_see_it(name: str) -> None:
    assert all(translate.request(pod).containers for pod in stories.pods(name))
    own = f"examples/stories/{name}.yaml"
    commands = [command for command in stories.commands(name) if command[:2] == ["corelane", "allocate"]]
    assert commands
    assert all(command[-2:] == ["-f", own] for command in commands)


@pytest.mark.parametrize("name", stories.names())
def test_the_commands_in_the_headers_show_it(name: str) -> None:
    shown = [said for said in stories.commands(name) if said[:2] == ["corelane", "allocate"]]
    for said in shown:
        arguments = [str(stories.path(name)) if word.startswith("examples/") else word for word in said[1:]]
        done = CliRunner().invoke(main, [*arguments, "-o", "json"])
        assert done.exit_code in (0, 1), done.output
        told = json.loads(done.output)
        found = [one["pod"] for one in told.get("pods", [told])]
        assert found == [f"default/{pod.metadata.name}" for pod in stories.pods(name)]


@pytest.mark.parametrize("settings", sorted((stories.DIRECTORY / "settings").glob("*.yaml")))
def test_settings_of_the_stories_can_be_read(settings: Path) -> None:
    assert nodefile.load(settings) != NodeConfig()


@pytest.mark.parametrize("name", ["2-guaranteed-and-shared", "4-exclusive-instances", "9-virtual-machine"])
def test_allocate_tells_what_is_tested_here(name: str) -> None:
    said = [
        "allocate",
        "--machine",
        stories.machine(name),
        "--policy",
        "pools",
        "-f",
        str(stories.path(name)),
    ]
    told = json.loads(CliRunner().invoke(main, [*said, "-o", "json"]).output)["pods"]
    shown = {
        (one["pod"], line["name"]): line["cpus"]
        for one in told
        for line in one["containers"]
        if line["exclusive"]
    }
    decided = placed(name).decisions
    assert shown == {
        (f"default/{pod}", container): str(cpus)
        for pod, decision in decided.items()
        for container, cpus in decision.assignments.items()
    }


# -- 1: the kubelet's options


def optioned(*, by_labels: bool, profile: PoolOptions) -> NodeState:
    state = stories.pools("1-kubelet-options")
    labels = {
        "node.koordinator.sh/cpu-bind-policy": "FullPCPUsOnly",
        "node.koordinator.sh/numa-allocate-strategy": "DistributeEvenly",
    }
    settings = node_labels.node_labels(labels if by_labels else {}, {})
    kubelet = KubeletSettings() if by_labels else KUBELET
    options = node_labels.pool_options(settings, kubelet, profile, state.topology)
    return new(state.machine, NodeConfig(policy="pools", pools=options))


@pytest.mark.parametrize("by_labels", [True, False])
@pytest.mark.parametrize("allocator", ["optimal", "koordinator"])
def test_the_kubelets_options_keep_their_meaning_under_pools(
    by_labels: bool, allocator: AllocatorName
) -> None:
    profile = PoolOptions(allocator=allocator, as_proposed=True)
    found = placed("1-kubelet-options", optioned(by_labels=by_labels, profile=profile))
    check_options(found, "node(s) requested cpus not multiple cpus per core")


def test_the_kubelets_options_keep_their_meaning_under_the_static_policy() -> None:
    options = StaticOptions(full_pcpus_only=True, distribute_cpus_across_numa=True)
    machine = parse_spec(stories.machine("1-kubelet-options"))
    config = NodeConfig(options=options, numa=TopologyOptions("best-effort"))
    check_options(placed("1-kubelet-options", new(machine, config)), "SMT Alignment Error")


def check_options(found: stories.Placed, refusal: str) -> None:
    wide = found.cpus("wide", "engine")
    shares = [(mask & wide.mask).bit_count() for _, mask in found.state.machine.numa_masks]
    assert shares == [10, 10]
    assert found.whole(wide)
    assert not found.decisions["odd"].admitted
    assert refusal in found.decisions["odd"].message


def test_a_label_of_the_node_comes_before_its_kubelets_options() -> None:
    settings = node_labels.node_labels({"node.koordinator.sh/numa-allocate-strategy": "MostAllocated"}, {})
    state = stories.pools("1-kubelet-options")
    options = node_labels.pool_options(settings, KUBELET, PoolOptions(), state.topology)
    assert options.strategy is NUMAStrategy.MOST_ALLOCATED


# -- 2: who shares with whom


@pytest.mark.parametrize("allocator", ["optimal", "koordinator"])
def test_reserved_cpus_are_lent_to_best_effort_and_exclusive_ones_are_not(allocator: AllocatorName) -> None:
    name = "2-guaranteed-and-shared"
    found = placed(name, stories.pools(name, allocator))
    state = found.state
    payments, search, classic = (found.cpus(pod) for pod in ("payments", "search", "classic"))
    web, batch = (state.runs_on(state.entries[f"uid-{pod}", "app"]) for pod in ("web", "batch"))
    assert [len(payments), len(search), len(classic)] == [4, 4, 2]
    assert not payments & (search | classic | web | batch)
    assert search | classic <= batch
    assert batch == state.usable - payments
    assert web == state.usable - payments - search - classic


def test_what_a_kubelet_gave_a_pod_before_the_takeover_is_lent_to_nobody() -> None:
    name = "2-guaranteed-and-shared"
    state = stories.pools(name)
    before = Entry(
        "uid-old", "app", "default/old", state.free_exclusive, Sharing.ALONE, origin=Origin.KUBELET
    )
    cpus = type(before.cpus).parse("6-7,14-15")
    before = replace(before, cpus=cpus)
    taken_over = with_entries(state, {before.key: before}, {"uid-old": 4000})
    found = placed(name, taken_over)
    assert not cpus & found.state.best_effort_pool
    assert not cpus & found.state.shared_pool
    assert not any(cpus & found.cpus(pod) for pod in ("payments", "search", "classic"))


# -- 3: alignment


def test_a_pod_goes_where_its_numa_node_is_and_not_where_only_the_sum_would_do() -> None:
    spec = stories.machine("3-numa-alignment")
    world = FaultyWorld()
    for name in ("sim-1", "sim-2"):
        world.kinds[name] = "pools"
        world.agents[name] = new(parse_spec(spec, name=name), NodeConfig(policy="pools"))
        labels = {"kubernetes.io/hostname": name, "corelane.io/simulated": "true"}
        world.set_node(objects.node(name, 32, memory="128Gi", labels=labels))
        world.publish(name)
    for pod in stories.pods("3-numa-alignment"):
        world.pod_comes(pod)
        settle(world)
    where = {pod.metadata.name: pod.spec.node_name for pod in world.pods.values()}
    assert where == {"left": "sim-1", "right": "sim-1", "engine": "sim-2", "bystander": "sim-1"}
    assert world.refusals == world.repicks == 0


def settle(world: FaultyWorld) -> None:
    """Everybody hears of everything, and does what follows."""
    world.hear_everything()
    world.tick()
    world.answer("ok")
    world.hear_everything()
    for name in world.agents:
        world.agent_works(name)
        world.publish(name)
    world.hear_everything()


@pytest.mark.parametrize("allocator", ["optimal", "koordinator"])
def test_the_first_node_has_room_in_all_but_in_no_numa_node(allocator: AllocatorName) -> None:
    found = placed("3-numa-alignment", stories.pools("3-numa-alignment", allocator))
    assert not found.decisions["engine"].admitted
    assert "NUMA" in found.decisions["engine"].message
    bystander = found.cpus("bystander")
    assert (len(bystander), len(found.numa(bystander))) == (10, 2)


def test_two_numa_nodes_of_the_first_node_have_room_for_the_pod_together() -> None:
    left, right, *_ = stories.pods("3-numa-alignment")
    found = stories.place(stories.pools("3-numa-alignment"), left, right)
    free = found.state.free_exclusive
    assert [(mask & free.mask).bit_count() for _, mask in found.state.machine.numa_masks] == [8, 8]


# -- 4: exclusive of one another, beside others


QUOTES = [f"quotes-{i}" for i in (1, 2, 3, 4)]


def test_instances_share_no_core_with_one_another_and_rather_one_with_quiet_ones() -> None:
    found = placed("4-exclusive-instances")
    quotes = [found.cores(found.cpus(name)) for name in QUOTES]
    reports = found.cores(found.cpus("reports"))
    assert [cores.bit_count() for cores in [reports, *quotes]] == [4, 2, 2, 2, 2]
    assert quotes[0] | quotes[1] == reports
    assert functools.reduce(operator.or_, quotes).bit_count() == 8
    assert not (quotes[2] | quotes[3]) & reports


def test_without_the_annotation_two_instances_share_cores() -> None:
    pods = stories.pods("4-exclusive-instances")
    for pod in pods:
        pod.metadata.annotations.pop("corelane.io/cpu-affinity", None)
    found = stories.place(stories.pools("4-exclusive-instances"), *pods)
    assert found.cores(found.cpus("quotes-3")) == found.cores(found.cpus("quotes-4"))


def test_koordinators_picks_keep_instances_apart_too() -> None:
    found = placed("4-exclusive-instances", stories.pools("4-exclusive-instances", "koordinator"))
    quotes = [found.cores(found.cpus(name)) for name in QUOTES]
    assert functools.reduce(operator.or_, quotes).bit_count() == sum(cores.bit_count() for cores in quotes)


# -- 5: which NUMA node first


@pytest.mark.parametrize("allocator", ["optimal", "koordinator"])
def test_some_pack_numa_nodes_and_others_take_the_emptiest(allocator: AllocatorName) -> None:
    found = placed("5-numa-strategy", stories.pools("5-numa-strategy", allocator))
    nodes = {pod: found.numa(found.cpus(pod)) for pod in found.decisions}
    assert nodes == {"pack-1": [0], "pack-2": [0], "calm-1": [1], "pack-3": [0], "calm-2": [1]}


# -- 6: fragmentation

NAME = "6-fragmentation"


def test_whole_cores_of_one_numa_node_are_left_after_odd_pods_came_and_went() -> None:
    *webs, analytics = stories.pods(NAME)
    for gone in ("", "uid-web-1"):
        found = stories.place(stories.pools(NAME), *webs)
        found = stories.place(release(found.state, gone), analytics)
        cpus = found.cpus("analytics")
        assert found.whole(cpus)
        assert len(found.numa(cpus)) == 1


@pytest.mark.parametrize("strategy", [None, NUMAStrategy.LEAST_ALLOCATED, NUMAStrategy.MOST_ALLOCATED])
def test_koordinators_picks_leave_no_such_cores(strategy: NUMAStrategy | None) -> None:
    *webs, analytics = stories.pods(NAME)
    found = stories.place(stories.pools(NAME, "koordinator", strategy=strategy), *webs)
    state = release(found.state, "uid-web-1")
    assert len(state.free_exclusive) == 17
    assert not stories.place(state, analytics).decisions["analytics"].admitted


def test_after_much_scaling_large_pods_fit_no_less_often_than_with_koordinators_picks() -> None:
    optimal, koordinator = (sum(fits(allocator, seed) for seed in range(4)) for allocator in ALLOCATORS)
    assert optimal >= koordinator
    assert optimal > 0


ALLOCATORS: tuple[AllocatorName, AllocatorName] = ("optimal", "koordinator")


def fits(allocator: AllocatorName, seed: int) -> int:
    """In how many of some moments of a changing load the large pod of the story would fit."""
    random, state, fit = Random(seed), stories.pools(NAME, allocator), 0
    *webs, analytics = (translate.request(pod) for pod in stories.pods(NAME))
    large = replace(analytics, uid="uid-large")
    for step in range(30):
        if state.pods and random.random() < 0.45:
            state = release(state, random.choice(sorted(state.pods)))
        else:
            state, _ = admit(state, replace(random.choice(webs), uid=f"uid-{step}"))
        fit += admit(state, large)[1].admitted
    return fit


# -- 7: trading


def trading() -> stories.Placed:
    state = stories.pools(
        "7-trading",
        reserved="0-1,8-9,16-17,24-25",
        isolated_cpus="exclusive-only",
    )
    return placed("7-trading", state)


def test_trading_has_isolated_cores_to_itself_in_one_numa_node() -> None:
    found = trading()
    machine = found.state.machine
    one, two, feed = (found.cpus(pod, "engine" if "trading" in pod else "app") for pod in found.decisions)
    for cpus in (one, two):
        assert len(cpus) == 3
        assert cpus <= machine.isolated
        assert found.cores(cpus).bit_count() == 2
        assert len(found.numa(cpus)) == 1
    cores = [found.cores(cpus) for cpus in (one, two, feed)]
    assert not cores[0] & cores[1]
    assert not (cores[0] | cores[1]) & cores[2]


def test_isolated_cpus_are_in_no_pool_of_the_trading_node() -> None:
    state = trading().state
    assert not state.shared_pool & state.machine.isolated
    assert not state.best_effort_pool & (state.machine.isolated - state.shared_with_be)
    assert state.shared_pool == state.reserved


def test_nobody_at_all_runs_on_the_threads_beside_a_trading_instance() -> None:
    found = trading()
    state = found.state
    for pod in ("trading-1", "trading-2"):
        cores = found.cores(found.cpus(pod, "engine"))
        around = CPUSet(cpu.id for cpu in state.machine.cpus if found.cores(CPUSet([cpu.id])) & cores)
        beside = around - found.cpus(pod, "engine")
        assert len(beside) == 1
        assert not beside & (state.shared_pool | state.best_effort_pool | CPUSet(state.owners()))


# -- 8: a network function


def test_a_network_function_has_its_cpus_where_its_nic_is() -> None:
    machine = parse_spec(stories.machine("8-network-function"))
    config = NodeConfig(
        numa=TopologyOptions("single-numa-node", "pod"), devices={"example.com/nic": {"vf0": 2, "vf1": 2}}
    )
    check_network_function(placed("8-network-function", new(machine, config)))


@pytest.mark.parametrize("allocator", ["optimal", "koordinator"])
def test_under_pools_its_cpus_are_where_its_nic_is_too(allocator: AllocatorName) -> None:
    state = stories.pools("8-network-function", allocator)
    config = replace(state.config, devices={"example.com/nic": {"vf0": 2, "vf1": 2}})
    check_network_function(placed("8-network-function", new(state.machine, config)))


def check_network_function(found: stories.Placed) -> None:
    own = found.decisions["packet-gateway"].assignments
    assert {name: len(cpus) for name, cpus in own.items()} == {"dataplane": 6, "telemetry": 1}
    assert not own["dataplane"] & own["telemetry"]
    assert [found.numa(cpus) for cpus in own.values()] == [[1], [1]]
    entries = found.state.entries
    assert entries["uid-packet-gateway", "dataplane"].devices["example.com/nic"] == ("vf0",)
    shipper = found.state.runs_on(entries["uid-packet-gateway", "log-shipper"])
    assert not shipper & (own["dataplane"] | own["telemetry"])


# -- 9: a virtual machine


@pytest.mark.parametrize("allocator", ["optimal", "koordinator"])
def test_virtual_cpus_are_whole_cores_and_the_emulator_is_on_none_of_them(allocator: AllocatorName) -> None:
    found = placed("9-virtual-machine", stories.pools("9-virtual-machine", allocator))
    for vm in ("vm-1", "vm-2"):
        guest, emulator = found.cpus(vm, "vcpus"), found.cpus(vm, "emulator")
        assert len(guest) == 8
        assert found.whole(guest)
        assert len(emulator) == 1
        assert not found.cores(guest) & found.cores(emulator)
        assert len(found.numa(guest | emulator)) == 1


def test_the_kubelets_settings_are_those_that_its_topology_tells() -> None:
    annotation = (
        '{"policy": "static", "options": {"full-pcpus-only": "true", "distribute-cpus-across-numa": "true"}}'
    )
    state = stories.pools("1-kubelet-options")
    published = objects.topology("sim-1", state)
    published.metadata.annotations["kubelet.koordinator.sh/cpu-manager-policy"] = annotation
    assert node_labels.published_kubelet(published).policies == KUBELET.policies
