from hypothesis import given, settings
from hypothesis import strategies as st

from corelane.limits.model.scenario import Histogram


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 10**12), min_size=1, max_size=200),
    st.sampled_from([1, 10, 50, 90, 95, 99, 99.9, 100]),
)
def test_every_percentile_is_within_one_percent_of_the_exact_one(values, percent):
    exact = sorted(values)[max(-(-len(values) * percent // 100), 1).__int__() - 1]
    found = Histogram(values).percentile(percent)
    assert found is not None
    assert abs(found - exact) <= 0.01 * exact


def test_memory_depends_on_the_range_of_values_not_on_their_number():
    histogram = Histogram(k * 7919 % 10**10 for k in range(200_000))
    assert histogram.count == 200_000
    assert len(histogram) < 35 * 128


def test_the_largest_and_the_mean_are_exact():
    histogram = Histogram([1_000_003, 5, 1_000_001])
    assert histogram.largest == 1_000_003
    assert histogram.mean() == 2_000_009 / 3


def test_an_empty_histogram_has_no_percentiles():
    histogram = Histogram()
    assert histogram.percentile(50) is None
    assert histogram.mean() is None
