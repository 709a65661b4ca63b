"""What is recorded of a decision on a pod is read back as decided, whatever stood there before."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corelane.cpuset import CPUSet
from corelane.kube import keys, translate
from corelane.kube.pod import Pod
from corelane.kube.translate import TranslationError
from corelane.kube.translate.placement_annotations import (
    ResourceStatus,
    proposed_cpus,
    proposed_zone,
    resource_status,
)
from corelane.kube.translate.placement_record import dump_resource_status
from corelane.machine.spec import parse_spec
from support.pods import container, pod

MACHINE = parse_spec("socket:2 numa:2 core:4 smt:2", name="n")
NAMES = ("a", "b", "c")
CPUS = st.sets(st.integers(0, 31), max_size=6).map(CPUSet)
ZONES = st.none() | st.sets(st.integers(0, 3), min_size=1, max_size=4).map(CPUSet)
BEFORE = {
    keys.RESOURCE_STATUS: '{"cpuset":"1-2","numaNodeResources":[{"node":1,"resources":{"cpu":"2"}}]}',
    keys.CONTAINER_CPUSETS: '{"a":"3","gone":"4"}',
    keys.CRANE_CPU_POLICY: "immovable",
    keys.CRANE_RESULT: '[{"name":"node0","type":"Node"}]',
}


def made(names: list[str], before: set[str], init: bool) -> Pod:
    containers = [container(name, "cpu=2 memory=1Gi") for name in names]
    first = tuple(containers[:1]) if init and len(containers) > 1 else ()
    return pod("p", *containers[len(first) :], init=first, annotations={key: BEFORE[key] for key in before})


@given(
    st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True),
    st.lists(CPUS, min_size=3, max_size=3),
    st.booleans(),
    ZONES,
    st.sets(st.sampled_from(sorted(BEFORE))),
    st.booleans(),
)
@settings(max_examples=80, deadline=None)
def test_a_record_says_what_was_decided(
    names: list[str], sets: list[CPUSet], alike: bool, zone: CPUSet | None, before: set[str], init: bool
) -> None:
    decided = {name: sets[0] if alike else own for name, own in zip(names, sets, strict=False)}
    of = made(names, before, init)
    record = translate.proposal_annotations(decided, of, MACHINE, zone)
    after = of.metadata.annotations | record
    own = {name: cpus for name, cpus in decided.items() if cpus}
    assert proposed_cpus(after, names) == own
    if len(own) < len(names):
        assert proposed_zone(after) == zone
    assert isinstance(json.loads(record.get(keys.RESOURCE_STATUS, "{}")), dict)
    assert not {key for key in record if "crane" in key}


@given(CPUS.filter(bool), st.booleans())
@settings(max_examples=30, deadline=None)
def test_koordinators_annotation_has_cpus_only_where_they_are_all_containers_and_no_pools(
    cpus: CPUSet, alone: bool
) -> None:
    """Its agent takes the CPUs of `cpuset` out of the shared pool and gives them to every container."""
    decided = {"a": cpus} if alone else {"a": cpus, "b": cpus}
    record = translate.proposal_annotations(decided, made(["a", "b"], set(), init=False), MACHINE)
    assert (keys.RESOURCE_STATUS in record) == (not alone)
    if not alone:
        told = json.loads(record[keys.RESOURCE_STATUS])
        assert told["cpuset"] == str(cpus)
        amounts = {one["node"]: int(one["resources"]["cpu"]) for one in told["numaNodeResources"]}
        held = {node: (mask & cpus.mask).bit_count() for node, mask in MACHINE.numa_masks}
        assert amounts == {node: count for node, count in held.items() if count}
    immovable = translate.proposal_annotations(
        {"a": cpus, "b": cpus}, made(["a", "b"], {keys.CRANE_CPU_POLICY}, init=False), MACHINE
    )
    assert resource_status(immovable).cpus == CPUSet()


@pytest.mark.parametrize("socket", [-1, 0, 1000])
def test_a_pools_socket_is_written_and_read_back(socket):
    status = ResourceStatus(pools=((socket, 1),))
    assert resource_status({keys.RESOURCE_STATUS: dump_resource_status(status)}) == status


@pytest.mark.parametrize(
    ("part", "field"), [({"node": -1}, "node"), ({"node": 1024}, "node"), ({"socket": -2}, "socket")]
)
def test_an_invalid_place_of_a_pool_is_reported_with_its_field(part, field):
    with pytest.raises(TranslationError, match=rf"cpuSharedPools\[0\]\.{field}: .*must be a number from"):
        resource_status({keys.RESOURCE_STATUS: json.dumps({"cpuSharedPools": [part]})})


def test_nulls_are_as_good_as_absent():
    part = {"node": None, "resources": {"cpu": None, "memory": "1Gi"}}
    text = json.dumps({"numaNodeResources": [part], "cpuSharedPools": [{"socket": None, "node": None}, None]})
    found = resource_status({keys.RESOURCE_STATUS: text})
    assert found == ResourceStatus(amounts={0: {"memory": "1Gi"}}, pools=((0, 0), (0, 0)))
