"""Hints for memory, huge pages and devices, against upstream's walk over all sets of nodes; and 16 nodes."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corelane.cpuset import CPUSet, bits
from corelane.placement import families, hints, memory_blocks, topology, topologymanager
from corelane.placement.hints import Hint
from corelane.placement.memory_blocks import MemoryBlock, MemoryNode
from support.executed_lines import counted
from support.numa_reference import fold


def every_set(ids):
    for size in range(1, len(ids) + 1):
        for chosen in itertools.combinations(sorted(ids), size):
            yield chosen, sum(1 << node for node in chosen)


def listed(family, ids):
    """A family as upstream's list."""
    if family is None:
        return None
    ids = sorted(ids)
    found = []
    for chosen, mask in every_set(ids):
        one = sum(1 << ids.index(node) for node in chosen)
        if family.sets[one]:
            found.append(Hint(mask, bool(family.preferred[one])))
    return found


def upstream_memory(nodes, wanted, reusable):
    """Upstream's calculateHints, line by line."""
    fewest, found = len(nodes), []
    for chosen, mask in every_set(nodes):
        if any(sum(nodes[i].allocatable.get(r, 0) for i in chosen) < n for r, n in wanted.items()):
            continue
        fewest = min(fewest, len(chosen))
        groups = {i: nodes[i].group or 1 << i for i in chosen}
        if len(chosen) == 1 and groups[chosen[0]].bit_count() > 1:
            continue
        used = [i for i in chosen if nodes[i].assignments]
        if len(chosen) > 1 and any(groups[i].bit_count() == 1 or groups[i] != mask for i in used):
            continue
        lent = reusable.get(mask, {})
        if any(sum(nodes[i].free.get(r, 0) for i in chosen) + lent.get(r, 0) < n for r, n in wanted.items()):
            continue
        found.append(mask)
    return [Hint(mask, mask.bit_count() == fewest) for mask in found] or None


RESOURCES = ["memory", "hugepages-2Mi", "hugepages-1Gi"]


@st.composite
def memories(draw):
    ids = draw(st.lists(st.integers(0, 9), min_size=1, max_size=5, unique=True))
    some = st.sets(st.sampled_from(ids), min_size=1).map(lambda ids: sum(1 << node for node in ids))
    nodes = {}
    for node in ids:
        allocatable = {r: draw(st.integers(0, 8)) for r in RESOURCES[: draw(st.integers(1, 3))]}
        free = {r: draw(st.integers(0, n)) for r, n in allocatable.items()}
        group = draw(st.one_of(st.just(0), some.map(lambda mask, node=node: mask | 1 << node)))
        nodes[node] = MemoryNode(allocatable, free, group, draw(st.integers(0, 2)))
    wanted = draw(st.dictionaries(st.sampled_from(RESOURCES), st.integers(0, 14), min_size=1))
    lent = st.dictionaries(st.sampled_from(RESOURCES), st.integers(0, 6))
    return nodes, wanted, draw(st.dictionaries(some, lent, max_size=2))


@settings(max_examples=120, deadline=None)
@given(memories())
def test_memory_hints_are_upstreams(case):
    nodes, wanted, reusable = case
    assert listed(memory_blocks.memory_hints(nodes, wanted, reusable), nodes) == upstream_memory(*case)


def gib(n, free=None, **more):
    return MemoryNode({"memory": n << 30}, {"memory": (n if free is None else free) << 30}, **more)


def test_memory_is_preferred_on_the_fewest_nodes_that_could_hold_it_idle():
    found = memory_blocks.memory_hints({0: gib(8, 2), 1: gib(8, 3)}, {"memory": 4 << 30})
    assert listed(found, [0, 1]) == [Hint(3, False)]


def test_nodes_grouped_for_a_pod_are_offered_only_as_that_group():
    grouped = {"group": 0b011, "assignments": 1}
    nodes = {0: gib(8, 6, **grouped), 1: gib(8, 8, **grouped), 2: gib(8)}
    assert [hint.nodes for hint in listed(memory_blocks.memory_hints(nodes, {"memory": 4 << 30}), nodes)] == [
        4,
        3,
    ]


def upstream_devices(devices, free, n, ids, reusable):
    fewest, found = len(ids), []
    for chosen, mask in every_set(ids):
        if sum(1 for device in devices if device & mask) >= n:
            fewest = min(fewest, len(chosen))
        known = [device for device in reusable if device]
        if any(not device & mask for device in known):
            continue
        if len(known) + sum(1 for device in free if device & mask) >= n:
            found.append(mask)
    return [Hint(mask, mask.bit_count() == fewest) for mask in found]


@settings(max_examples=120, deadline=None)
@given(st.data())
def test_device_hints_are_upstreams(data):
    ids = sorted(data.draw(st.sets(st.integers(0, 9), min_size=1, max_size=5)))
    place = st.sets(st.sampled_from(ids), max_size=2).map(lambda ids: sum(1 << node for node in ids))
    every = data.draw(st.lists(place, max_size=8))
    state = [data.draw(st.sampled_from(["used", "free", "free", "reusable"])) for _ in every]
    free = [device for device, what in zip(every, state, strict=True) if what == "free"]
    lent = [device for device, what in zip(every, state, strict=True) if what == "reusable"]
    n, narrow = data.draw(st.integers(0, 6)), data.draw(st.booleans())
    nodes = sum(1 << node for node in ids)
    found = hints.device_hints(every, free, n, nodes, reusable=lent, narrow=narrow)
    if not any(every):
        assert found is None
    elif len(free) + len(lent) < n:
        assert listed(found, ids) == []
    else:
        near = [node for node in ids if any(device >> node & 1 for device in every)]
        assert listed(found, ids) == upstream_devices(every, free, n, near if narrow else ids, lent)


SPARSE = topology.build([(cpu, cpu, cpu // 4, [0, 0, 1, 1, 8, 8, 9, 9][cpu], 0) for cpu in range(8)])


@st.composite
def mixtures(draw):
    """CPUs, memory and devices of some node, all in part in use, as families and as upstream's lists."""
    nodes, wanted, _ = draw(memories().filter(lambda case: len(case[0]) <= 3))
    ids = sorted(nodes)
    rows = [(cpu, cpu, 0, ids[cpu % len(ids)], 0) for cpu in range(6)]
    cpus = topology.build(rows)
    place = st.sets(st.sampled_from(ids), max_size=2).map(lambda ids: sum(1 << node for node in ids))
    every = draw(st.lists(place, max_size=5))
    free = [device for device in every if draw(st.booleans())]
    mask = sum(1 << node for node in ids)
    available, n = draw(st.integers(0, 63)), draw(st.integers(1, 6))
    said = [
        hints.device_hints(every, free, draw(st.integers(0, 3)), mask, narrow=draw(st.booleans())),
        hints.cpu_family(cpus, available, 0, n, mask),
        *[memory_blocks.memory_hints(nodes, wanted)] * len(wanted),
    ]
    return mask, said, [listed(one, ids) for one in said]


@settings(max_examples=60, deadline=None)
@given(mixtures(), st.sampled_from(["best-effort", "restricted", "single-numa-node"]), st.booleans())
def test_merging_cpus_memory_and_devices_gives_what_upstreams_fold_gives(case, policy, closest):
    mask, families_, lists = case
    far = {a: {b: 10 + abs(a - b) % 7 for b in range(10)} for a in range(10)} if closest else None
    found = topologymanager.merge(families_, mask, policy, distances=far)
    assert found == fold(lists, mask, policy, far)


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 255), st.integers(0, 255), st.integers(1, 8), st.booleans())
def test_the_family_of_cpu_hints_has_all_of_them_and_no_node_without_cpus(free, lent, n, by_socket):
    ids, lent = [0, 1, 5, 8, 9], lent & ~free
    nodes = sum(1 << node for node in ids)
    every = hints.cpu_hints(SPARSE, free, lent, n, by_socket=by_socket)
    family = hints.cpu_family(SPARSE, free, lent, n, nodes, by_socket=by_socket)
    assert listed(family, ids) == every
    assert family.narrowest == min((hint.nodes.bit_count() for hint in every), default=0)


def test_more_than_sixteen_nodes_are_refused_with_what_to_do():
    with pytest.raises(families.TooManyNodes, match="17 NUMA nodes are more than 16"):
        memory_blocks.memory_hints({node: gib(1) for node in range(17)}, {"memory": 1})


SIXTEEN = topology.build([(cpu, cpu, cpu // 64, cpu // 16, 0) for cpu in range(256)])
FAR = {a: {b: 10 + abs(a - b) for b in range(16)} for a in range(16)}


@pytest.mark.parametrize("wanted", [2, 8, 15])
@pytest.mark.parametrize("taken", [0, 1])
def test_three_resources_on_sixteen_nodes_are_no_explosion(wanted, taken):
    """Hints and their merge; upstream compares (2 ** 16) ** 3 of them."""
    nodes = {node: gib(16, 16 - taken) for node in range(16)}

    def merged():
        cpus = hints.cpu_family(SIXTEEN, SIXTEEN.all & ~1, 0, 16 * wanted, 0xFFFF)
        memories = memory_blocks.memory_hints(nodes, {"memory": wanted << 34})
        held = [1 << i for i in range(16)]
        gpus = hints.device_hints(held * 2, held, wanted, 0xFFFF)
        return topologymanager.merge([gpus, cpus, memories], 0xFFFF, "best-effort", distances=FAR)

    found, lines = counted(merged)
    assert lines < 400_000
    assert found.admit
    assert not found.nodes or set(bits(found.nodes)) <= set(range(16))


@pytest.mark.parametrize(
    ("kib", "name"),
    [
        (64, "hugepages-64Ki"),
        (2048, "hugepages-2Mi"),
        (32 << 10, "hugepages-32Mi"),
        (1 << 20, "hugepages-1Gi"),
        (16 << 20, "hugepages-16Gi"),
    ],
)
def test_huge_pages_are_named_as_kubernetes_does(kib, name):
    assert memory_blocks.hugepages(kib) == name


@settings(max_examples=40, deadline=None)
@given(memories(), st.data())
def test_the_best_hint_is_upstreams_choice_among_all(case, data):
    nodes, wanted, _ = case
    including = sum(1 << node for node in data.draw(st.sets(st.sampled_from(sorted(nodes)), max_size=2)))
    family = memory_blocks.memory_hints(nodes, wanted)
    said = [hint for hint in listed(family, nodes) or [] if not including & ~hint.nodes]
    best = min(said, key=lambda hint: (not hint.preferred, hint.nodes.bit_count(), hint.nodes), default=None)
    assert memory_blocks.best_hint(nodes, family, including) == best


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 7), st.integers(0, 12)), max_size=6), st.randoms())
def test_memory_that_was_taken_and_given_back_is_all_there_again(requests, chance):
    idle = {i: MemoryNode({"memory": 10}, {"memory": 10}) for i in range(3)}
    nodes, blocks = idle, []
    for where, size in requests:
        if memory_blocks.holds(nodes, where, {"memory": size}) and not memory_blocks.collides(nodes, where):
            nodes = memory_blocks.taken(nodes, where, "memory", size)
            blocks.append(MemoryBlock("memory", size, CPUSet.from_mask(where)))
            held = sum(block.size for block in blocks)
            assert sum(node.reserved("memory") for node in nodes.values()) == held
            assert all(0 <= node.free["memory"] <= 10 for node in nodes.values())
    chance.shuffle(blocks)
    for block in blocks:
        nodes = memory_blocks.given_back(nodes, block)
    assert nodes == idle
