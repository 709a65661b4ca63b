"""Koordinator's allocator against a plain model, its own tables, and what the proposal says."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from corelane.cpuset import bits, format_list, parse_list
from corelane.placement import topology
from corelane.placement.koordinator import allocator
from corelane.placement.koordinator.allocator import NotSatisfied
from corelane.placement.koordinator.cpu_picker import Held, Request
from corelane.workload import BindPolicy, ExclusivePolicy, NUMAStrategy
from support import koordinator_reference as reference

FULL, SPREAD = BindPolicy.FULL_PCPUS, BindPolicy.SPREAD_BY_PCPUS
MOST, LEAST, EVENLY = (
    NUMAStrategy.MOST_ALLOCATED,
    NUMAStrategy.LEAST_ALLOCATED,
    NUMAStrategy.DISTRIBUTE_EVENLY,
)
PCPU, NUMA, NONE = ExclusivePolicy.PCPU_LEVEL, ExclusivePolicy.NUMA_NODE_LEVEL, ExclusivePolicy.NONE


def rows(sockets, nodes, cores, threads):
    """Upstream's notation of test machines: siblings are adjacent."""
    made = []
    for cpu in range(sockets * nodes * cores * threads):
        core = cpu // threads
        made.append((cpu, core, core // (cores * nodes), core // cores, 0))
    return made


def machine(*shape):
    return topology.build(rows(*shape))


def pick(shape, allocated, n, request, others=allocator.NOTHING_HELD, preferred=""):
    of = machine(*shape)
    free = of.all & ~parse_list(allocated)
    return format_list(allocator.take(of, free, n, request, others, preferred=parse_list(preferred)))


@pytest.mark.parametrize(
    ("shape", "allocated", "n", "most", "least"),
    [
        ((1, 1, 4, 2), "", 2, "0-1", "0-1"),
        ((1, 1, 4, 2), "0,1", 2, "2-3", "2-3"),
        ((2, 1, 4, 2), "", 8, "0-7", "0-7"),
        ((2, 1, 4, 2), "", 12, "0-11", "0-11"),
        ((2, 1, 4, 2), "0,1", 8, "8-15", "8-15"),
        ((2, 2, 4, 2), "0-5,16-23", 6, "24-29", "8-13"),
        ((2, 2, 4, 2), "0-5,16-23", 12, "6-15,24-25", "6-15,24-25"),
        ((2, 2, 4, 2), "0-3,8-11", 4, "4-7", "16-19"),
        ((2, 2, 2, 2), "0,2,4,8,12", 4, "10-11,14-15", "10-11,14-15"),
        ((2, 2, 2, 2), "0,2,4,8,10,12", 6, "5-7,13-15", "1,3,6-7,14-15"),
        ((2, 1, 4, 2), "0-2", 3, "4-6", None),
    ],
)
def test_full_cores_are_upstreams(shape, allocated, n, most, least):
    assert pick(shape, allocated, n, Request(FULL, strategy=MOST)) == most
    assert least is None or pick(shape, allocated, n, Request(FULL, strategy=LEAST)) == least


@pytest.mark.parametrize(
    ("shape", "allocated", "n", "most", "least"),
    [
        ((1, 1, 4, 2), "", 4, "0,2,4,6", "0,2,4,6"),
        ((2, 1, 4, 2), "0,2", 4, "1,3-4,6", "8,10,12,14"),
        ((2, 1, 4, 2), "0-3", 4, "8,10,12,14", "8,10,12,14"),
        ((2, 1, 4, 2), "0,2", 6, "1,3-7", "8-12,14"),
        ((1, 1, 8, 1), "1,3", 3, "0,2,4", "0,2,4"),
        ((2, 2, 4, 2), "", 10, "0-4,6,8,10,12,14", "0-4,6,8,10,12,14"),
        ((2, 2, 4, 2), "", 20, "0-8,10,12,14,16,18,20,22,24,26,28,30", None),
    ],
)
def test_spreading_is_upstreams(shape, allocated, n, most, least):
    assert pick(shape, allocated, n, Request(SPREAD, strategy=MOST)) == most
    assert least is None or pick(shape, allocated, n, Request(SPREAD, strategy=LEAST)) == least


@pytest.mark.parametrize(
    ("shape", "held", "bind", "exclusive", "n", "expected"),
    [
        ((2, 1, 4, 2), Held(cores=0b101), SPREAD, PCPU, 4, "8,10,12,14"),
        ((2, 1, 4, 2), Held(), SPREAD, PCPU, 10, "0-4,6,8,10,12,14"),
        ((2, 1, 8, 2), Held(cores=0b101), SPREAD, PCPU, 4, "4,6,8,10"),
        ((2, 1, 8, 2), Held(cores=0b101), SPREAD, NONE, 4, "1,3-4,6"),
        ((2, 1, 4, 2), Held(nodes=0b101), SPREAD, NUMA, 4, "8,10,12,14"),
        ((2, 1, 4, 2), Held(nodes=0b101), SPREAD, NONE, 4, "1,3-4,6"),
        ((2, 1, 4, 2), Held(nodes=0b101), FULL, NUMA, 4, "8-11"),
        ((2, 1, 4, 2), Held(nodes=0b101), FULL, NONE, 4, "4-7"),
        ((2, 1, 4, 2), Held(cores=0b101), SPREAD, PCPU, 6, "1,3-7"),
        ((2, 1, 4, 2), Held(cores=0b101), FULL, PCPU, 6, "8-13"),
    ],
)
def test_exclusivity_is_upstreams(shape, held, bind, exclusive, n, expected):
    allocated = format_list(held.cores | held.nodes)
    assert pick(shape, allocated, n, Request(bind, exclusive, MOST), held) == expected


@pytest.mark.parametrize(
    ("shape", "steps"),
    [
        ((1, 1, 4, 2), [(FULL, 4, "0-3"), (FULL, 5, "0,4-7"), (FULL, 4, "2-5")]),
        (
            (1, 1, 16, 2),
            [
                (SPREAD, 16, "0,2,4,6,8,10,12,14,16,18,20,22,24,26,28,30"),
                (FULL, 16, "0-15"),
                (SPREAD, 16, "1,3,5,7,9,11,13,15,17,19,21,23,25,27,29,31"),
                (FULL, 16, "16-31"),
                (FULL, 1, None),
            ],
        ),
    ],
)
def test_two_pods_may_share_a_cpu(shape, steps):
    of, counts = machine(*shape), dict.fromkeys(range(32), 0)
    for bind, n, expected in steps:
        others = allocator.held(((cpu, count, NONE) for cpu, count in counts.items()), most=2)
        free = sum(1 << cpu for cpu in bits(of.all) if counts[cpu] < 2)
        if expected is None:
            assert not free
            continue
        taken = allocator.take(of, free, n, Request(bind, strategy=MOST), others)
        assert format_list(taken) == expected
        for cpu in bits(taken):
            counts[cpu] += 1


@pytest.mark.parametrize(
    ("allocated", "preferred", "expected"),
    [("", "", "0,2"), ("", "0,2", "0,2"), ("0,2", "", "1,3"), ("", "11,13,15,17", "11,13")],
)
def test_preferred_cpus_come_first(allocated, preferred, expected):
    request = Request(SPREAD, strategy=MOST)
    assert pick((2, 1, 16, 2), allocated, 2, request, preferred=preferred) == expected


@st.composite
def cases(draw):
    sockets, per_socket = draw(st.sampled_from([(1, 1), (2, 1), (1, 2), (2, 2), (4, 1)]))
    cores, threads = draw(st.integers(1, 4)), draw(st.sampled_from([1, 2, 2, 4]))
    total, interleaved = sockets * per_socket * cores, draw(st.booleans())
    numbers = draw(st.permutations(range(total))) if draw(st.booleans()) else range(total)
    made = []
    for core in range(total):
        place = numbers[core], core // (cores * per_socket), core // cores, 0
        made += [(core + i * total if interleaved else core * threads + i, *place) for i in range(threads)]
    cpus = st.sampled_from(range(len(made)))
    most = draw(st.integers(1, 3))
    counts = draw(st.dictionaries(cpus, st.integers(1, most))) if draw(st.booleans()) else {}
    held = draw(st.dictionaries(cpus, st.sampled_from(["PCPULevel", "NUMANodeLevel"]), max_size=3))
    free = {cpu for cpu in range(len(made)) if counts.get(cpu, 0) < most}
    preferred = draw(st.sets(cpus, max_size=4))
    return made, free, draw(st.integers(0, len(free) + 1)), counts if most > 1 else {}, held, preferred, most


def mask(cpus):
    return sum(1 << cpu for cpu in cpus)


def others(counts, held, most):
    cpus = counts.keys() | held.keys()
    return allocator.held(
        ((cpu, counts.get(cpu, 0), ExclusivePolicy(held.get(cpu, ""))) for cpu in cpus), most
    )


def outcome(call):
    try:
        return call()
    except ValueError as error:
        return str(error)


SETTINGS = settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])


@SETTINGS
@given(cases(), st.sampled_from([FULL, SPREAD]), st.sampled_from(list(ExclusivePolicy)), st.booleans())
def test_every_pick_is_that_of_a_plain_model(case, bind, exclusive, most_allocated):
    made, free, n, counts, held, preferred, most = case
    of, request = topology.build(made), Request(bind, exclusive, MOST if most_allocated else LEAST)
    ours = outcome(
        lambda: set(
            bits(
                allocator.take(
                    of, mask(free), n, request, others(counts, held, most), preferred=mask(preferred)
                )
            )
        )
    )
    theirs = outcome(
        lambda: reference.take(made, free, n, bind, exclusive, most_allocated, counts, held, preferred)
    )
    assert ours == theirs


@SETTINGS
@given(
    cases(),
    st.sampled_from([FULL, SPREAD]),
    st.sampled_from(list(ExclusivePolicy)),
    st.sampled_from(list(NUMAStrategy)),
    st.booleans(),
    st.booleans(),
)
def test_a_valid_pick_has_exactly_the_number_asked_for(
    case, bind, exclusive, strategy, required, as_proposed
):
    made, free, n, counts, held, preferred, most = case
    of, request = topology.build(made), Request(bind, exclusive, strategy, required, as_proposed)
    holding = others(counts, held, most)
    try:
        taken = allocator.take_valid(of, mask(free), n, request, holding, preferred=mask(preferred))
    except NotSatisfied as error:
        assert required or n > len(free), error
        return
    assert taken.bit_count() == n and not taken & ~mask(free)
    if required:
        touched = of.cores_of(taken).bit_count()
        assert touched == n if bind is SPREAD else of.whole_cores(taken) == taken


def test_an_odd_number_from_several_sockets_is_one_core_too_many_as_upstream_unless_it_must_be_valid():
    of = machine(4, 1, 8, 2)
    free = parse_list("8-9,12-13,18-19,22-25,32-33,36-43,48-49,56-57")
    assert format_list(allocator.take(of, free, 13, Request())) == "8-9,32-33,36-43,48-49"
    assert allocator.take_valid(of, free, 13, Request()).bit_count() == 13


HYBRID = topology.build([(cpu, cpu // 2 if cpu < 8 else cpu, 0, 0, 0) for cpu in range(12)])


@pytest.mark.parametrize("bind", [FULL, SPREAD])
@pytest.mark.parametrize("n", range(1, 13))
def test_cores_of_different_size_are_counted_by_their_own(bind, n):
    assert allocator.take_valid(HYBRID, HYBRID.all, n, Request(bind)).bit_count() == n


def test_a_required_bind_policy_refuses_in_upstreams_words():
    of = machine(1, 1, 4, 2)
    with pytest.raises(NotSatisfied, match=r"^not enough cpus available to satisfy request$"):
        allocator.take(of, parse_list("0,2,4,6"), 2, Request(FULL, required=True))
    with pytest.raises(
        NotSatisfied, match=r"^insufficient CPUs to satisfy required cpu bind policy FullPCPUs$"
    ):
        allocator.take(of, of.all, 3, Request(FULL, required=True))
    with pytest.raises(NotSatisfied, match=r"^not enough cpus available to satisfy request$"):
        allocator.take(of, of.all, 5, Request(SPREAD, required=True))
    spread = allocator.take(of, parse_list("1,2,3,4,5,6"), 4, Request(SPREAD, required=True))
    assert format_list(spread) == "1-2,4,6"


def test_distribute_evenly_is_least_allocated_upstream_and_even_as_proposed():
    shape = (2, 2, 4, 2)
    upstream, proposed = Request(strategy=EVENLY), Request(strategy=EVENLY, as_proposed=True)
    assert pick(shape, "", 12, upstream) == pick(shape, "", 12, Request(strategy=LEAST)) == "0-11"
    assert pick(shape, "", 12, proposed) == "0-5,8-13"
    assert pick(shape, "", 6, proposed) == "0-5"
    assert pick(shape, "0-5", 12, proposed) == "8-13,16-21"
    assert pick(shape, "1,3,5", 8, Request(strategy=EVENLY, as_proposed=True)) == "8-15"
    assert pick((2, 1, 4, 2), "0,2,8,10", 8, proposed) == "4-7,12-15"
    assert pick((2, 1, 4, 2), "", 9, proposed) == "0-4,8-11"


def test_even_shares_come_from_full_cores_and_up_to_the_last_of_them_as_proposed():
    """The first node has more CPUs free, but the second as many full cores; a node may give all it has."""
    proposed = Request(strategy=EVENLY, as_proposed=True)
    assert pick((2, 1, 2, 2), "0,6-7", 2, proposed) == "4-5"
    assert pick((2, 1, 2, 2), "1,3-5", 3, proposed) == "0,2,6"


def test_numa_node_level_falls_back_to_cores_as_proposed():
    held, shape = Held(nodes=parse_list("0,8")), (2, 1, 4, 2)
    request = Request(SPREAD, NUMA, MOST)
    assert pick(shape, "0,8", 3, request, held) == "1-2,4"
    proposed = Request(SPREAD, NUMA, MOST, as_proposed=True)
    assert pick(shape, "0,8", 3, proposed, held) == "2,4,6"
    exactly = Request(FULL, NUMA, MOST, as_proposed=True)
    assert pick(shape, "0-1,8-9", 6, exactly, Held(nodes=parse_list("0"))) == "10-15"


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.integers(0, 9), st.integers(0, 20), min_size=1), st.data(), st.integers(1, 3))
def test_a_request_is_split_wherever_the_nodes_have_it_in_whole_units(available, data, unit):
    most = sum(amount // unit for amount in available.values())
    wanted = unit * data.draw(st.integers(0, most + 1))
    if wanted > most * unit:
        with pytest.raises(NotSatisfied, match=r"^Insufficient NUMA cpu$"):
            allocator.split(available, wanted, unit=unit)
        return
    parts = allocator.split(available, wanted, unit=unit)
    assert sum(parts.values()) == wanted
    assert all(part % unit == 0 and 0 < part <= available[node] for node, part in parts.items())


def test_the_poorest_node_gives_first_so_what_fits_is_not_refused():
    assert allocator.split({0: 8, 1: 2}, 8) == {0: 6, 1: 2}
    with pytest.raises(NotSatisfied, match=r"^Insufficient NUMA cpu$"):
        allocator.split({0: 8, 1: 2}, 11)


def test_the_nodes_of_a_hint_give_even_parts():
    of = machine(2, 2, 4, 2)
    assert format_list(allocator.take_on(of, of.all, 6, [1, 3], Request())) == "8-10,24-26"
    full = Request(required=True)
    assert format_list(allocator.take_on(of, of.all, 6, [1, 3], full)) == "8-9,24-27"
    with pytest.raises(NotSatisfied, match=r"^Insufficient NUMA cpu$"):
        allocator.take_on(of, parse_list("8,10,24"), 2, [1, 3], full)
