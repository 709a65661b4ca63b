from hypothesis import given
from hypothesis import strategies as st

from corelane.kernel import cfs


def test_shares_are_the_kubelets():
    assert [cfs.shares(milli) for milli in (0, 1, 2, 100, 250, 1000, 256000, 10**9)] == [
        2, 2, 2, 102, 256, 1024, 262144, 262144,
    ]  # fmt: skip


def test_quota_is_the_kubelets():
    assert [cfs.quota_us(milli) for milli in (0, 1, 10, 15, 500, 1500)] == [
        0,
        1000,
        1000,
        1500,
        50000,
        150000,
    ]
    assert cfs.quota_us(500, period_us=10_000) == 5_000


def test_both_formulas_for_the_weight_give_their_published_values():
    shares = (2, 102, 1024, 2048, 262144)
    assert [cfs.pod_weight(value) for value in shares] == [1, 4, 39, 79, 10000]
    assert [cfs.container_weight(value) for value in shares] == [1, 17, 100, 174, 10000]


def test_values_outside_the_kernels_range_are_clamped():
    assert cfs.pod_weight(0) == cfs.container_weight(0) == 1
    assert cfs.pod_weight(10**9) == cfs.container_weight(10**9) == 10000


@given(st.integers(2, 262144), st.integers(2, 262144))
def test_weights_keep_the_order_of_shares_within_the_kernels_range(one, other):
    for formula in (cfs.pod_weight, cfs.container_weight):
        assert 1 <= formula(one) <= 10000
        assert (formula(one) <= formula(other)) or one > other
