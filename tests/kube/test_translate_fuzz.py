"""Any text in labels and annotations is read, or raises TranslationError."""

from hypothesis import given, settings

from corelane.kube import keys
from corelane.kube.translate import TranslationError, koordlet, node_labels
from corelane.kube.translate.placement_annotations import (
    placement_spec,
    proposed_cpus,
    proposed_zone,
    resource_status,
)
from support.garbage import ON_NODES, ON_PODS, TEXTS, written
from support.pods import container, pod


@settings(max_examples=120, deadline=None)
@given(written(ON_PODS))
def test_pods(texts):
    found = pod("a", container("x", "cpu=1"), annotations=texts, labels=texts)
    try:
        placement_spec(found)
    except TranslationError as error:
        assert str(error).isprintable()
        assert len(str(error)) < 850


@settings(max_examples=120, deadline=None)
@given(written(ON_NODES))
def test_nodes(texts):
    node_labels.node_labels(texts, texts)


@settings(max_examples=120, deadline=None)
@given(TEXTS)
def test_records_and_published_annotations(text):
    for key, read in (
        (keys.RESOURCE_STATUS, resource_status),
        (keys.RESOURCE_STATUS, proposed_zone),
        (keys.CONTAINER_CPUSETS, lambda texts: proposed_cpus(texts, ["cpu"])),
        (keys.CPU_SHARED_POOLS, koordlet.pools),
        (keys.POD_CPU_ALLOCS, koordlet.pod_allocations),
    ):
        try:
            read({key: text})
        except TranslationError as error:
            assert error.field.startswith(f"metadata.annotations[{key}]")
