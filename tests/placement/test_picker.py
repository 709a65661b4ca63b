"""The picker against a plain model of upstream, on machines of every shape, and upstream's own table."""

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from corelane.cpuset import CPUSet, bits, format_list, parse_list
from corelane.placement import topology
from corelane.placement.kubelet import picker
from corelane.placement.kubelet.picker import Strategy
from support import kubelet_reference as reference


def ids(mask):
    return set(bits(mask))


@st.composite
def rows(draw, max_nodes=4):
    """A machine of any shape: siblings adjacent or far apart, some CPUs off."""
    sockets, per_socket = draw(st.sampled_from([(1, 1), (2, 1), (1, 2), (2, 2), (3, 1), (4, 1), (2, 4)]))
    assume(sockets * per_socket <= max_nodes)
    caches, cores = draw(st.integers(1, 2)), draw(st.integers(1, 4))
    threads, interleaved = draw(st.sampled_from([1, 2, 2, 4])), draw(st.booleans())
    total = sockets * per_socket * caches * cores
    made = []
    for core in range(total):
        node = core // (caches * cores)
        place = (core, node // per_socket, node, core // cores)
        made += [(core + i * total if interleaved else core * threads + i, *place) for i in range(threads)]
    off = (
        draw(st.sets(st.sampled_from(range(len(made))), max_size=len(made) // 3))
        if draw(st.booleans())
        else set()
    )
    return [row for i, row in enumerate(sorted(made)) if i not in off] or made


@st.composite
def cases(draw, max_nodes=4):
    machine = draw(rows(max_nodes))
    cpus = [row[0] for row in machine]
    taken = draw(st.sets(st.sampled_from(cpus), max_size=draw(st.sampled_from([0, 3, len(cpus)]))))
    available = set(cpus) - taken | draw(st.sets(st.just(999), max_size=1))
    return machine, available, draw(st.integers(0, len(available) + 1))


def outcome(pick):
    try:
        return pick()
    except ValueError as error:
        return str(error)


VERSIONS = st.sampled_from(["1.36", "1.37", "1.38"])
common = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])


@common
@given(cases(), st.booleans(), st.booleans())
def test_packed_picks_what_upstream_picks(case, spread, uncore):
    machine, available, n = case
    strategy = Strategy(spread=spread, uncore=uncore)
    mask = CPUSet(available).mask
    ours = outcome(lambda: ids(picker.take(topology.build(machine), mask, n, strategy)))
    theirs = outcome(lambda: reference.packed(reference.Topo(machine), available, n, spread, uncore))
    assert ours == theirs or theirs in str(ours)


def test_part_of_a_cache_drops_no_thread_where_cores_have_one_on_average():
    hybrid = topology.build([(0, 0, 0, 0, 0), *((cpu, max(cpu, 1) - 1, 0, 0, 0) for cpu in range(1, 5))])
    assert hybrid.cpus_per_core == 1
    assert ids(picker.take(hybrid, hybrid.all, 1, Strategy(uncore=True))) == {2}


def test_where_upstream_hangs_on_its_way_to_a_plan_of_uneven_cores_n_free_cpus_come_back():
    sizes = {0: (2, 2, 1), 1: (1, 3), 2: (2, 3), 3: (1, 1)}
    cores = [(node, size) for node, sizes_here in sizes.items() for size in sizes_here]
    owners = [(core, node) for core, (node, size) in enumerate(cores) for _ in range(size)]
    machine = [(cpu, core, node // 2, node, node) for cpu, (core, node) in enumerate(owners)]
    with pytest.raises(reference.Hang):
        reference.distributed(reference.Topo(machine), set(range(16)), 14, 2, False, True)
    taken = picker.take(topology.build(machine), 0xFFFF, 14, Strategy(distribute=True, group=2))
    assert taken.bit_count() == 14
    assert not taken & ~0xFFFF


@common
@given(cases(max_nodes=8), st.sampled_from([1, 1, 2, 4]), st.booleans(), st.booleans())
def test_distributed_picks_what_upstream_picks(case, group, spread, alias):
    machine, available, n = case
    strategy = Strategy(distribute=True, group=group, spread=spread, version="1.36" if alias else "1.38")
    built, mask = topology.build(machine), CPUSet(available).mask
    assume(alias or len({row[1] for row in machine}) * built.threads == len(machine))
    ours = outcome(lambda: ids(picker.take(built, mask, n, strategy)))
    try:
        theirs = outcome(
            lambda: reference.distributed(
                reference.Topo(machine), available, n, group, spread and (alias or "rounds"), alias
            )
        )
    except reference.Hang:
        assert ours <= available
        assert len(ours) == n
    else:
        assert ours == theirs or theirs in str(ours)


@common
@given(
    cases(max_nodes=8), st.booleans(), st.booleans(), st.booleans(), st.sampled_from(["1.36", "1.37", "1.38"])
)
def test_a_valid_pick_is_always_n_of_the_available_cpus(case, distribute, spread, uncore, version):
    machine, available, n = case
    built = topology.build(machine)
    usable = CPUSet(available).mask & built.all
    assume(n <= usable.bit_count())
    strategy = Strategy(distribute, spread, uncore, group=2, version=version)
    taken = picker.take_valid(built, usable, n, strategy)
    assert taken.bit_count() == n
    assert not taken & ~usable


@st.composite
def overlapping(draw):
    """What firmware and hypervisors tell at their worst: sockets, nodes and caches that cut one another."""
    cores, threads = draw(st.integers(1, 12)), draw(st.sampled_from([1, 2]))
    places = [tuple(draw(st.integers(0, 3)) for _ in range(3)) for _ in range(cores)]
    return [(core + i * cores, core, *places[core]) for core in range(cores) for i in range(threads)]


@settings(max_examples=80, deadline=None)
@given(overlapping(), st.data(), st.booleans(), st.booleans(), st.booleans(), VERSIONS)
def test_a_valid_pick_is_found_where_units_overlap(machine, data, distribute, spread, uncore, version):
    built = topology.build(machine)
    available = CPUSet(data.draw(st.sets(st.sampled_from([row[0] for row in machine])))).mask
    n = data.draw(st.integers(0, available.bit_count()))
    strategy = Strategy(distribute, spread, uncore, data.draw(st.sampled_from([1, 2])), True, version)
    taken = picker.take_valid(built, available, n, strategy)
    assert taken.bit_count() == n
    assert not taken & ~available


@given(st.integers(1, 1 << 300), st.data())
def test_lowest_are_the_first_ids(mask, data):
    n = data.draw(st.integers(0, mask.bit_count()))
    assert list(bits(topology.lowest(mask, n))) == list(bits(mask))[:n]


def layout(cpus, cores, socket_of, numa_of, uncore_of=lambda core: 0):
    """Upstream's unit test machines: sibling i of core c is c + i * cores."""
    made = [
        (cpu, cpu % cores, socket_of(cpu % cores), numa_of(cpu % cores), uncore_of(cpu % cores))
        for cpu in range(cpus)
    ]
    return topology.build(made)


SINGLE_HT = layout(8, 4, lambda c: 0, lambda c: 0)
DUAL_HT = layout(12, 6, lambda c: c % 2, lambda c: c % 2)
DUAL_NO_HT = layout(8, 8, lambda c: c // 4, lambda c: c // 4)
DUAL_4_NUMA = layout(80, 40, lambda c: c // 20, lambda c: c // 10)
LARGE_8_NUMA = layout(256, 128, lambda c: c // 64, lambda c: c // 16)
UNCORE_SINGLE = layout(16, 16, lambda c: 0, lambda c: 0, lambda c: c // 4)
UNCORE_SMT = layout(16, 8, lambda c: 0, lambda c: 0, lambda c: c // 4)
UNCORE_MULTI_NUMA = layout(16, 16, lambda c: 0, lambda c: c // 8, lambda c: c // 4)
UNCORE_DUAL = layout(16, 16, lambda c: c // 8, lambda c: 0, lambda c: c // 4)
PACKED, UNCORE, SPREAD = Strategy(), Strategy(uncore=True), Strategy(spread=True)
EVEN, EVEN_PAIRS = Strategy(distribute=True), Strategy(distribute=True, group=2)
SPARSE = (
    "0,30-31,43-47,62-63,75-79,94,96,101-111,126-128,158-159,171-175,190-191,203-207,222-223,229-239,254-255"
)


@pytest.mark.parametrize(
    ("strategy", "machine", "available", "n", "expected"),
    [
        (PACKED, SINGLE_HT, "0-7", 1, "0"),
        (EVEN, SINGLE_HT, "1,3,5-7", 1, "6"),
        (PACKED, SINGLE_HT, "0-3,6", 2, "2,6"),
        (PACKED, DUAL_HT, "0-11", 6, "0,2,4,6,8,10"),
        (PACKED, DUAL_HT, "1-5,7-11", 1, "2"),
        (PACKED, DUAL_HT, "0-11", 8, "0-2,4,6-8,10"),
        (PACKED, DUAL_4_NUMA, "10-39,50-79", 20, "10-19,50-59"),
        (EVEN, DUAL_4_NUMA, "1-39,41-79", 60, "10-39,50-79"),
        (PACKED, DUAL_4_NUMA, "0-79", 64, "0-31,40-71"),
        (UNCORE, UNCORE_SINGLE, "1-15", 10, "1-2,4-11"),
        (UNCORE, UNCORE_DUAL, "2-15", 6, "2-7"),
        (UNCORE, UNCORE_DUAL, "8-15", 4, "8-11"),
        (UNCORE, UNCORE_MULTI_NUMA, "3-8,12", 2, "4-5"),
        (UNCORE, UNCORE_SMT, "2-7,10-15", 6, "4-6,12-14"),
        (UNCORE, UNCORE_SMT, "1-7,9-15", 10, "1,4-7,9,12-15"),
        (SPREAD, SINGLE_HT, "0-7", 3, "0-2"),
        (SPREAD, DUAL_HT, "0-11", 8, "0-4,6,8,10"),
        (SPREAD, DUAL_NO_HT, "0-7", 2, "0-1"),
        (SPREAD, DUAL_4_NUMA, "0-79", 8, "0-7"),
        (EVEN, DUAL_HT, "0-11", 8, "0-3,6-9"),
        (EVEN, DUAL_4_NUMA, "0-79", 48, "0-7,10-17,20-27,40-47,50-57,60-67"),
        (EVEN, DUAL_4_NUMA, "2-29,31-39,42-69,71-79", 48, "10-17,20-27,31-38,50-57,60-67,71-78"),
        (EVEN, DUAL_4_NUMA, "0-79", 26, "0-6,10-16,40-45,50-55"),
        (EVEN_PAIRS, DUAL_4_NUMA, "0-79", 26, "0-6,10-15,40-46,50-55"),
        (EVEN, DUAL_4_NUMA, "0-79", 62, "0-7,10-17,20-27,30-37,40-47,50-57,60-66,70-76"),
        (EVEN_PAIRS, DUAL_4_NUMA, "0-79", 62, "0-7,10-17,20-27,30-36,40-47,50-57,60-67,70-76"),
        (EVEN, LARGE_8_NUMA, SPARSE, 28, "43-47,75-79,96,101-105,171-174,203-206,229-232"),
    ],
)  # fmt: skip
def test_upstreams_own_table_holds(strategy, machine, available, n, expected):
    assert format_list(picker.take(machine, parse_list(available), n, strategy)) == expected


def nodes_used(machine, taken):
    return [i for i, node in enumerate(machine.numa) if node & taken]


@pytest.mark.parametrize(
    ("n", "aliased", "intended"),
    [
        (100, [0, 1, 2, 7], [0, 1, 2, 3]),
        (128, [0, 1, 2, 7], [0, 1, 2, 3]),
        (192, [0, 1, 2, 3, 4, 7], [0, 1, 2, 3, 4, 5]),
        (200, [0, 1, 2, 3, 4, 6, 7], [0, 1, 2, 3, 4, 5, 6]),
    ],
)
def test_until_1_38_the_chosen_nodes_are_overwritten(n, aliased, intended):
    for version, expected in (("1.36", aliased), ("1.37", aliased), ("1.38", intended)):
        strategy = Strategy(distribute=True, version=version)
        assert nodes_used(LARGE_8_NUMA, picker.take(LARGE_8_NUMA, LARGE_8_NUMA.all, n, strategy)) == expected


HYBRID = topology.build(
    [(cpu, cpu // 2, 0, 0, 0) for cpu in range(16)] + [(cpu, cpu, 0, 0, 0) for cpu in range(16, 28)]
)


def test_1_36_hands_out_a_busy_cpu_on_a_hybrid_machine_and_1_37_does_not():
    available = parse_list("1-27")
    assert format_list(picker.take(HYBRID, available, 2, Strategy())) == "0-1"
    assert picker.take(HYBRID, available, 2, Strategy(version="1.37")) & ~available == 0
    assert picker.take_valid(HYBRID, available, 2, Strategy()) & ~available == 0


@common
@given(cases())
def test_from_1_38_spreading_takes_one_cpu_of_each_core_in_turn(case):
    machine, available, n = case
    built, mask = topology.build(machine), CPUSet(available).mask
    assume(len({row[1] for row in machine}) * built.threads == len(machine))
    ours = outcome(lambda: ids(picker.take(built, mask, n, Strategy(spread=True, version="1.38"))))
    theirs = outcome(lambda: reference.packed(reference.Topo(machine), available, n, "rounds"))
    assert ours == theirs or theirs in str(ours)


ADJACENT = topology.build([(cpu, cpu // 2, 0, 0, 0) for cpu in range(8)])


@pytest.mark.parametrize(("n", "before", "after"), [(2, "0-1", "0,2"), (5, "0-4", "0-2,4,6")])
def test_1_38_spreads_by_core_where_ids_of_siblings_are_adjacent(n, before, after):
    """The example of kubernetes#140766: the order is 0,2,4,6,1,3,5,7 instead of that of the ids."""
    for version, expected in (("1.36", before), ("1.37", before), ("1.38", after)):
        taken = picker.take(ADJACENT, ADJACENT.all, n, Strategy(spread=True, version=version))
        assert format_list(taken) == expected


FOUR_BY_64 = layout(256, 128, lambda c: c // 64, lambda c: c // 32)


@pytest.mark.parametrize(("hinted", "expected"), [(0, 3), (2, 3), (4, 4), (5, 3)])
def test_1_38_uses_as_many_nodes_as_the_hint_has(hinted, expected):
    """The case of kubernetes#139430, mended by #139456: 176 CPUs, and GPUs on all four nodes."""
    for version, nodes in (("1.36", 3), ("1.37", 3), ("1.38", expected)):
        strategy = Strategy(distribute=True, version=version)
        taken = picker.take(FOUR_BY_64, FOUR_BY_64.all, 176, strategy, hinted=hinted)
        assert taken.bit_count() == 176
        assert len(nodes_used(FOUR_BY_64, taken)) == nodes


FOUR_BY_4 = topology.build([(cpu, cpu, cpu % 2, cpu % 4, 0) for cpu in range(16)])


def test_1_37_prefers_nodes_of_one_socket_under_align_by_socket():
    """The machine of kubernetes#114642 (nodes 0 and 2 on socket 0), mended by #139778."""
    available = FOUR_BY_4.all & ~1
    for version, by_socket, expected in (
        ("1.36", True, 2),
        ("1.37", False, 2),
        ("1.37", True, 1),
        ("1.38", True, 1),
    ):
        strategy = Strategy(distribute=True, by_socket=by_socket, version=version)
        taken = picker.take(FOUR_BY_4, available, 7, strategy)
        assert taken.bit_count() == 7
        assert sum(1 for socket in FOUR_BY_4.sockets if socket & taken) == expected, version


def test_where_upstream_would_loop_for_ever_a_valid_set_comes_back():
    machine = layout(32, 16, lambda c: 0, lambda c: c // 4)
    available = 0
    for node, count in zip(machine.numa, (5, 2, 4, 5), strict=True):
        available |= CPUSet(list(bits(node))[:count]).mask
    with pytest.raises(reference.Hang):
        reference.balanced({0: 5, 1: 2, 2: 4, 3: 5}, 14, 2, 2)
    taken = picker.take(machine, available, 14, EVEN_PAIRS)
    assert taken.bit_count() == 14
    assert not taken & ~available


def test_too_few_cpus_are_refused_in_upstreams_words():
    with pytest.raises(picker.NotEnoughCPUs) as refusal:
        picker.take(SINGLE_HT, parse_list("0,2,4,6"), 5, PACKED)
    assert str(refusal.value) == ("not enough cpus available to satisfy request: requested=5, available=4")


def test_an_empty_or_contradictory_topology_is_refused():
    with pytest.raises(ValueError, match="could not detect number of cpus"):
        topology.build([])
    with pytest.raises(ValueError, match="twice"):
        topology.build([(0, 0, 0, 0, 0), (0, 1, 0, 0, 0)])
