"""Histograms for frequent values are rendered as prometheus_client renders its own."""

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Histogram

from corelane import prometheus
from corelane.prometheus import FrequentHistogram

NAMES = ("point", "status")
BOUNDS = (0.0001, 0.0002, 0.25, 1.0, 3.0)
VALUES = st.sampled_from((*BOUNDS, 0.0, 0.00011, 0.3, 3.0000001, 1e9)) | st.floats(0, 10)
LABELS = st.tuples(st.sampled_from(("Filter", "Bind", 'a"b\n')), st.sampled_from(("Success", "Error")))


@given(st.lists(st.tuples(VALUES, LABELS)))
def test_the_text_is_that_of_prometheus_client(observed):
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    frequent = FrequentHistogram("taken_seconds", "What it takes.", NAMES, buckets=BOUNDS, registry=ours)
    reference = Histogram("taken_seconds", "What it takes.", NAMES, buckets=BOUNDS, registry=theirs)
    for value, labels in observed:
        frequent.labels(*labels).observe(value)
        reference.labels(*labels).observe(value)
    assert prometheus.text(ours) == prometheus.text(theirs)
