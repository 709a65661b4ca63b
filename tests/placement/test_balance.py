"""The search for the most even nodes against the exhaustive one, and its time where that would explode."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corelane.placement import balance
from support import kubelet_reference as reference
from support.executed_lines import counted

GROUPS = st.sampled_from([1, 1, 2, 4])


def exhaustive(free, n, group, fewest, alias):
    try:
        return reference.balanced(dict(enumerate(free)), n, group, fewest, alias)
    except reference.Hang:
        return "hang"


def found(free, n, group, fewest, alias):
    plan = balance.plan(free, n, group, fewest, alias=alias)
    return plan and (list(plan.nodes), plan.share, list(plan.bearers))


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.integers(1, 24), min_size=1, max_size=7),
    st.data(),
    st.sampled_from([1, 1, 2, 4]),
    st.booleans(),
)
def test_the_plan_is_that_of_the_exhaustive_search(free, data, group, alias):
    most = sum(count // group for count in free)
    if not most:
        return
    n = data.draw(st.integers(1, most)) * group
    fewest = data.draw(st.integers(1, len(free)))
    expected = exhaustive(free, n, group, fewest, alias)
    if expected != "hang":
        ours = found(free, n, group, fewest, alias)
        assert ours == (expected and tuple(expected))


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 20), st.integers(0, 2)), min_size=1, max_size=6), st.data(), GROUPS)
def test_by_socket_the_plan_is_that_of_the_exhaustive_search(nodes, data, group):
    free = [count for count, _ in nodes]
    most = sum(count // group for count in free)
    if not most:
        return
    n = data.draw(st.integers(1, most)) * group
    socket_of = {i: socket for i, (_, socket) in enumerate(nodes)}
    expected = reference.balanced_by_socket(dict(enumerate(free)), socket_of, n, group, 1)
    masks = [1 << socket for _, socket in nodes]
    plan = balance.plan_by_socket(free, masks, n, group, 1, alias=False)
    assert (plan is None) == (expected is None)
    if plan:
        least = min(free[i] for i in plan.nodes) // group * group
        ours = (list(plan.nodes), min(plan.share, least), list(plan.bearers))
        assert ours == expected


@settings(max_examples=12, deadline=None)
@given(st.lists(st.sampled_from([3, 7, 8, 12, 16]), min_size=9, max_size=10), st.data())
def test_the_plan_is_that_of_the_exhaustive_search_on_ten_nodes(free, data):
    n = data.draw(st.integers(1, sum(free)))
    expected = exhaustive(free, n, 1, 1, True)
    assert found(free, n, 1, 1, True) == (expected and tuple(expected))


@pytest.mark.parametrize(
    ("free", "group"),
    [
        ([64] * 16, 1),
        ([64] * 16, 2),
        ([31, 64, 17, 40, 22, 64, 9, 33, 50, 12, 28, 64, 19, 45, 7, 60], 1),
        ([31, 64, 17, 40, 22, 64, 9, 33, 50, 12, 28, 64, 19, 45, 7, 60], 4),
        (list(range(40, 56)), 1),
    ],
)
def test_sixteen_nodes_are_no_explosion(free, group):
    most = 0
    for n in range(group, sum(count // group for count in free) * group + 1, 7 * group):
        plan, lines = counted(balance.plan, free, n, group, 1)
        most = max(most, lines)
        assert plan is None or sum(free[i] for i in plan.nodes) >= n
    assert most < 20_000


@pytest.mark.parametrize("n", [30, 60, 222, 260, 300, 380])
def test_by_socket_sixteen_nodes_are_no_explosion_and_stay_in_one_socket_where_they_can(n):
    free = [32 - i * 5 % 13 for i in range(16)]
    plan, lines = counted(balance.plan_by_socket, free, [1 << i // 4 for i in range(16)], n, 1, 1)
    assert lines < 600_000
    assert plan
    if n <= 60:
        assert len({i // 4 for i in plan.nodes}) == 1


def test_of_more_nodes_only_some_combinations_are_looked_at():
    free = [
        10,
        10,
        11,
        12,
        14,
        18,
        20,
        11,
        11,
        12,
        12,
        18,
        20,
        10,
        10,
        11,
        11,
        12,
        12,
        12,
        14,
        18,
        20,
        9,
        10,
        10,
    ]
    plan, lines = counted(balance.plan, free * 2, 127, 1, 11)
    assert lines < 150_000
    assert plan
    assert sum(free[i % len(free)] for i in plan.nodes) >= 127
