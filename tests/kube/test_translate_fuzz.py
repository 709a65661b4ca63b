"""Whatever people write into labels and annotations: it is understood, or named as a fault."""

from hypothesis import given, settings

from corelane.kube import keys
from corelane.kube.translate import (
    TranslationError,
    koordinator,
    nodesettings,
    placement_spec,
    proposals,
    statuses,
)
from support.garbage import ON_NODES, ON_PODS, TEXTS, written
from support.pods import container, pod


@settings(max_examples=120, deadline=None)
@given(written(ON_PODS))
def test_pods(texts):
    found = pod("a", container("x", "cpu=1"), annotations=texts, labels=texts)
    faults = placement_spec.faults(found)
    try:
        placement_spec.read(found)
    except TranslationError as error:
        assert str(error) == str(faults[0])
        assert str(error).isprintable()
        assert len(str(error)) < 850
    else:
        assert faults == ()


@settings(max_examples=120, deadline=None)
@given(written(ON_NODES))
def test_nodes(texts):
    nodesettings.read(texts, texts)


@settings(max_examples=120, deadline=None)
@given(TEXTS)
def test_records_and_published_annotations(text):
    for key, read in (
        (keys.RESOURCE_STATUS, statuses.read),
        (keys.RESOURCE_STATUS, proposals.zone),
        (keys.CONTAINER_CPUSETS, lambda texts: proposals.read(texts, ["cpu"])),
        (keys.CRANE_RESULT, statuses.crane_result),
        (keys.CPU_SHARED_POOLS, koordinator.pools),
        (keys.POD_CPU_ALLOCS, koordinator.pod_allocations),
        (keys.CPU_BASIC_INFO, koordinator.basic_info),
    ):
        try:
            read({key: text})
        except TranslationError as error:
            assert error.field.startswith(f"metadata.annotations[{key}]")
