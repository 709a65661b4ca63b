"""A repair keeps running containers' CPUs: none has two owners, and the kubelet starts."""

import json
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corelane import node
from corelane.cpuset import CPUSet
from corelane.machine.spec import parse_spec
from corelane.node import StaticOptions
from corelane.node.config import NodeConfig
from corelane.node.kubelet import checkpoint, validation
from corelane.node.recovery import rebuilding
from corelane.node.recovery.cpu_owners import (
    ContainerName,
    CPUNeed,
    CPUOwner,
    ListedPod,
    Observation,
    RunningContainer,
    cpu_owners,
)
from corelane.node.recovery.rebuilding import RepairError
from corelane.reasons import sentence
from corelane.workload.request import ContainerKind, QOSClass
from support.node_asks import container, init, pod, sidecar

MACHINES = [
    parse_spec(text)
    for text in (
        "socket:1 numa:1 core:8 smt:2",
        "socket:2 numa:2 core:4 smt:2",
        "socket:2 numa:1 core:6 smt:1",
    )
]
KINDS = {"app": container, "init": init, "sidecar": sidecar}


def config(reserved=1, strict=False, **options):
    return NodeConfig(
        reserved_count=reserved,
        options=StaticOptions(strict_cpu_reservation=strict, **options),
        numa=node.TopologyOptions(policy="none"),
        exact=True,
    )


@st.composite
def nodes(draw):
    """A node on which some pods were admitted, as the kubelet would have."""
    machine = draw(st.sampled_from(MACHINES))
    state = node.new(machine, config(draw(st.integers(1, 3)), draw(st.booleans())))
    requests = {}
    for number in range(draw(st.integers(0, 6))):
        members = draw(
            st.lists(
                st.tuples(st.sampled_from(list(KINDS)), st.sampled_from([500, 1000, 2000, 3000])),
                min_size=1,
                max_size=3,
            )
        )
        members.sort(key=lambda member: member[0] == "app")
        containers = [KINDS[kind](f"c{i}", milli) for i, (kind, milli) in enumerate(members)]
        qos = draw(st.sampled_from([QOSClass.GUARANTEED, QOSClass.GUARANTEED, QOSClass.BURSTABLE]))
        request = pod(f"uid{number}", *containers, qos=qos)
        after, decision = node.admit(state, request)
        if decision.admitted and after.shared_pool:
            state, requests[request.uid] = after, request
    return state, requests


def groups(state, requests):
    """The cgroups of all its containers; of init containers those without later ones on their CPUs."""
    for (uid, name), entry in state.entries.items():
        if entry.kind is ContainerKind.INIT:
            continue
        qos = "" if requests[uid].qos is QOSClass.GUARANTEED else "burstable"
        cpus = entry.cpus or state.shared_pool
        yield RunningContainer(uid, f"{uid}-{name}", cpus, qos, state.usable)


def known(request, *, ids=True):
    wanted = {
        one.name: CPUNeed(request.exclusive_cpus(one), one.kind is ContainerKind.INIT)
        for one in request.containers
    }
    named = {f"{request.uid}-{one.name}": one.name for one in request.containers}
    return ListedPod(request.key, False, wanted, named if ids else {})


def told(state, requests):
    """By container id what a runtime knows from the shares of Guaranteed pods' containers."""
    return {
        f"{uid}-{one.name}": request.exclusive_cpus(one)
        for uid, request in requests.items()
        for one in request.containers
        if request.qos is QOSClass.GUARANTEED
    }


def evidence(state, requests, draw_list, draw_file, draw_names, draw_runtime=False):
    remembered = checkpoint.from_state(state)
    draw_names = draw_names or draw_runtime
    return Observation(
        requests=told(state, requests) if draw_runtime else {},
        ready=dict.fromkeys(requests, "") if draw_runtime else {},
        containers=tuple(groups(state, requests)),
        pods={uid: known(request) for uid, request in requests.items()} if draw_list else {},
        names={
            f"{uid}-{name}": ContainerName("test", uid, name) for uid, name in state.entries if draw_names
        },
        recorded=remembered if draw_file else None,
        reserved=state.reserved,
    )


def sound(found, state):
    """Assert that the kubelet starts with the file, and that no CPU has two pods."""
    assert not validation.broken(validation.check(found, state))
    pods = dict.fromkeys(found.entries, 0)
    for uid, containers in found.entries.items():
        for cpus in containers.values():
            pods[uid] |= cpus.mask
    everybody = found.default.mask
    for mask in pods.values():
        assert not mask & everybody
        everybody |= mask


@settings(max_examples=70, deadline=None)
@given(nodes(), st.booleans(), st.booleans(), st.booleans(), st.booleans())
def test_every_running_owner_keeps_its_cpus_from_any_source_of_names(
    drawn, with_list, with_file, with_names, with_runtime
):
    state, requests = drawn
    found = evidence(state, requests, with_list, with_file, with_names, with_runtime)
    try:
        rebuilt = rebuilding.rebuild(cpu_owners(found), node.new(state.machine, state.config), found.recorded)
    except RepairError as error:
        assert not (with_list or with_runtime), (
            "only without a list of pods the shared pool may be taken for exclusive CPUs"
        )
        assert "--pods" in str(error)
        return
    sound(rebuilt.checkpoint, state)
    for (uid, name), entry in state.entries.items():
        if not entry.exclusive or entry.kind is ContainerKind.INIT:
            continue
        of_pod = rebuilt.checkpoint.entries[uid]
        kept = of_pod[name] if with_list or with_names or with_file or with_runtime else None
        assert kept == entry.cpus if kept else entry.cpus in of_pod.values()


@settings(max_examples=60, deadline=None)
@given(nodes(), st.sampled_from(["list", "runtime"]))
def test_a_file_that_fits_stays_unchanged(drawn, known_by):
    state, requests = drawn
    found = evidence(state, requests, known_by == "list", True, False, known_by == "runtime")
    rebuilt = rebuilding.rebuild(cpu_owners(found), node.new(state.machine, state.config), found.recorded)
    assert rebuilt.checkpoint == found.recorded


@settings(max_examples=70, deadline=None)
@given(nodes(), st.integers(1, 5), st.booleans(), st.integers(0, 3), st.booleans(), st.randoms())
def test_after_any_change_of_settings_and_cpus_the_kubelet_starts(
    drawn, reserved, strict, gone, with_list, rng
):
    state, requests = drawn
    lost = CPUSet(rng.sample(list(state.usable), gone))
    machine = state.machine.restricted(state.usable.mask & ~lost.mask)
    now = node.new(machine, config(reserved, strict))
    found = evidence(state, requests, with_list, True, False)
    try:
        rebuilt = rebuilding.rebuild(cpu_owners(found), now, found.recorded)
    except RepairError as error:
        assert strict
        assert "strict-cpu-reservation" in str(error)
        return
    sound(rebuilt.checkpoint, now)
    may_own = now.usable - now.reserved
    for (uid, name), entry in state.entries.items():
        kept = entry.cpus & may_own
        if kept and entry.kind is not ContainerKind.INIT:
            after = rebuilt.checkpoint.entries[uid][name]
            assert kept <= after
            assert len(after) <= len(entry.cpus)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 3), st.integers(0, 2), st.integers(1, (1 << 16) - 1), st.booleans(), st.booleans()
        ),
        max_size=8,
    ),
    st.integers(1, 4),
    st.booleans(),
)
def test_no_cpu_gets_two_pods_whatever_the_owners(drawn, reserved, strict):
    state = node.new(MACHINES[0], config(reserved, strict))
    claimed = [
        CPUOwner(f"u{uid}", f"c{name}", CPUSet.from_mask(mask), running, request=4 if known else None)
        for uid, name, mask, running, known in {one[:2]: one for one in drawn}.values()
    ]
    try:
        rebuilt = rebuilding.rebuild(claimed, state)
    except RepairError:
        assert strict
        return
    sound(rebuilt.checkpoint, state)
    blocked = rebuilt.checkpoint.default.mask & ~state.reserved.mask
    for claim in claimed:
        assert not (claim.running and claim.cpus.mask & blocked)


LAPTOP = MACHINES[0]
OWNER = RunningContainer("u1", "id1", CPUSet.parse("2,10"), "", CPUSet(range(16)))


def rebuilt(evidence_, state=None):
    state = state or node.new(LAPTOP, config())
    return rebuilding.rebuild(
        cpu_owners(replace(evidence_, reserved=state.reserved)), state, evidence_.recorded
    )


def why(found):
    return ", ".join(map(sentence, found.changes[0].reasons))


def entries(found):
    return {
        f"{uid}/{name}": str(cpus)
        for uid, of in found.checkpoint.entries.items()
        for name, cpus in of.items()
    }


def old(entries_, default="0-15"):
    sets = {uid: {n: CPUSet.parse(t) for n, t in of.items()} for uid, of in entries_.items()}
    return checkpoint.Checkpoint("static", CPUSet.parse(default), sets)


def test_cpus_of_an_owner_without_a_name_stay_allocated():
    found = rebuilt(Observation((OWNER,)))
    assert entries(found) == {"u1/unknown-id1": "2,10"}
    assert "stay allocated" in why(found)


def test_the_only_container_that_fits_gives_the_name():
    pods = {"u1": ListedPod("default/one", False, {"side": CPUNeed(0), "main": CPUNeed(2)})}
    assert entries(rebuilt(Observation((OWNER,), pods))) == {"u1/main": "2,10"}


def test_two_containers_that_fit_give_no_name():
    pods = {"u1": ListedPod("default/one", False, {"one": CPUNeed(2), "other": CPUNeed(2)})}
    assert entries(rebuilt(Observation((OWNER,), pods))) == {"u1/unknown-id1": "2,10"}


def test_a_file_with_a_wrong_checksum_still_names_containers_by_cpus():
    before = old({"u1": {"main": "2,10"}, "u9": {"gone": "3"}})
    assert entries(rebuilt(Observation((OWNER,), recorded=before, intact=False))) == {"u1/main": "2,10"}


def test_version_1_is_read_by_container_ids():
    before = checkpoint.Checkpoint(
        "static", CPUSet.parse("0-1"), {"": {"id1": CPUSet.parse("2,10")}}, version=1
    )
    names = {"id1": ContainerName("default", "one", "main")}
    assert entries(rebuilt(Observation((OWNER,), names=names, recorded=before))) == {"u1/main": "2,10"}


def test_containers_in_the_shared_pool_are_not_owners():
    everywhere = CPUSet(range(16))
    pool = CPUSet.parse("0-1,3-9,11-15")
    sharing = (
        RunningContainer("u2", "sandbox", everywhere, "", everywhere),
        RunningContainer("u3", "burstable", pool, "burstable", everywhere),
        RunningContainer("u4", "fractional", pool, "", everywhere),
        RunningContainer("u5", "inherits", CPUSet(), "", everywhere),
        RunningContainer("u6", "infrastructure", CPUSet([0]), "", everywhere),
    )
    assert entries(rebuilt(Observation((OWNER, *sharing)))) == {"u1/unknown-id1": "2,10"}


def test_cpus_that_became_reserved_are_replaced_from_the_same_numa_node():
    quad = MACHINES[1]
    reserved = NodeConfig(reserved=CPUSet.parse("12"), exact=True, numa=node.TopologyOptions(policy="none"))
    state = node.new(quad, reserved)
    group = RunningContainer("u1", "id1", CPUSet.parse("12-13"), "", quad.usable)
    pods = {"u1": ListedPod("default/one", False, {"main": CPUNeed(2)}, {"id1": "main"})}
    found = rebuilt(Observation((group,), pods), state)
    after = CPUSet.parse(entries(found)["u1/main"])
    node_of_13 = next(mask for _, mask in quad.numa_masks if mask >> 13 & 1)
    assert 13 in after
    assert len(after) == 2
    assert not after.mask & ~node_of_13
    assert "CPU 12 is now reserved" in why(found)
    assert "replaced by" in why(found)


def test_a_crashing_container_keeps_its_entry_while_its_pod_is_present():
    before = old({"u1": {"main": "2,10", "crashing": "3,11"}, "u8": {"dead": "4"}}, "0-1,5-9,12-15")
    found = rebuilt(Observation((OWNER,), recorded=before))
    assert entries(found) == {"u1/main": "2,10", "u1/crashing": "3,11"}


def test_an_ended_pod_releases_its_cpus():
    before = old({"u1": {"main": "2,10"}}, "0-1,3-9,11-15")
    pods = {"u1": ListedPod("default/one", True, {"main": CPUNeed(2)})}
    assert entries(rebuilt(Observation((), pods, recorded=before))) == {}


def test_policy_none_has_no_entries():
    state = node.new(LAPTOP, NodeConfig(policy="none", exact=True))
    found = rebuilt(Observation((OWNER,), recorded=old({"u1": {"main": "2,10"}})), state)
    assert json.loads(checkpoint.encode(found.checkpoint)) == {
        "policyName": "none",
        "defaultCpuSet": "",
        "checksum": 1353318690,
    }


def test_a_pod_with_pod_level_cpus_keeps_them():
    before = replace(
        old({"u1": {"main": "2", "one": "3,10", "two": "3,10"}}, "0-1,4-9,11-15"),
        pods={"u1": CPUSet.parse("2-3,10")},
        version=3,
    )
    running = [
        RunningContainer("u1", "m", CPUSet.parse("2"), "", LAPTOP.usable),
        RunningContainer("u1", "a", CPUSet.parse("3,10"), "", LAPTOP.usable),
        RunningContainer("u1", "b", CPUSet.parse("3,10"), "", LAPTOP.usable),
    ]
    names = {
        "m": ContainerName("d", "p", "main"),
        "a": ContainerName("d", "p", "one"),
        "b": ContainerName("d", "p", "two"),
    }
    found = rebuilt(Observation(running, names=names, recorded=before))
    assert replace(found.checkpoint, version=3) == before


def test_strict_reservation_without_a_shared_pool_is_an_error_with_a_remedy():
    state = node.new(LAPTOP, config(strict=True))
    group = RunningContainer("u1", "id1", LAPTOP.usable - state.reserved, "", LAPTOP.usable)
    pods = {"u1": ListedPod("default/one", False, {"main": CPUNeed(15)}, {"id1": "main"})}
    with pytest.raises(RepairError, match=r"strict-cpu-reservation.*end a pod"):
        rebuilt(Observation((group,), pods), state)


def test_owners_do_not_depend_on_the_order_of_cgroups():
    everywhere = CPUSet(range(16))
    some = [RunningContainer(f"u{i}", f"id{i}", CPUSet([i, i + 8]), "", everywhere) for i in range(1, 7)]
    some.append(RunningContainer("u8", "id8", CPUSet.parse("0,7-8,15"), "burstable", everywhere))
    shuffled = random.Random(1).sample(some, len(some))
    assert entries(rebuilt(Observation(some))) == entries(rebuilt(Observation(shuffled)))
