"""The kubelet's state file, against files that 1.36 wrote, upstream's unit tests, and bug reports."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corelane import node
from corelane.cpuset import CPUSet
from corelane.node.kubelet import checkpoint
from corelane.node.kubelet.checkpoint import Checkpoint
from corelane.node.kubelet.statefile import CheckpointError, fnv1a
from support.node_asks import LAPTOP, container, cpus, init, pod

POD = {"pod": {"container1": "4-6", "container2": "1-3"}}
REPORTED = {
    "69aa6124-4e0e-4c66-94ea-feae7df25b68": {"init-container": "35"},
    "e49ac32c-22a3-4c8c-8be3-721bd1fd9eaa": {"centos": "0,2,4-14,32,34,36-46", "init-container": "33"},
}


def of(policy, default, entries=None, pods=None, version=2):
    sets = {
        uid: {name: cpus(text) for name, text in containers.items()}
        for uid, containers in (entries or {}).items()
    }
    return Checkpoint(policy, cpus(default), sets, {uid: cpus(t) for uid, t in (pods or {}).items()}, version)


def checksum(content, name="checksum"):
    return json.loads(content)[name]


KNOWN = [
    (of("none", "4-6"), 354655845),
    (of("none", "1-3", POD), 3610638499),
    (of("other", "1-3"), 1394507217),
    (of("none", ""), 1353318690),
    (of("static", "0-63"), 1058907510),
    (of("static", "1,3,15-31,47-63", REPORTED), 3748757820),
    (of("static", "0-2,4-7", {"499a37ae-89a8-4e73-a090-f86ea22a9f4c": {"cpu-qos2": "3"}}), 1515081781),
    (of("none", "1-3", version=1), 1694838852),
    (of("none", "1-3", {"": {"containerID1": "4-6", "containerID2": "1-3"}}, version=1), 3680390589),
    (of("none", "1-3", POD, {"pod": "4-6"}, version=3), 2649431787),
]


@pytest.mark.parametrize(("known", "expected"), KNOWN)
def test_checksums_are_upstreams(known, expected):
    content = checkpoint.encode(known, known.version)
    assert checksum(content) == expected
    assert checkpoint.decode(content) == known


@pytest.mark.parametrize(
    ("known", "data", "expected"),
    [
        (
            of("static", "1-3", {"pod": {"container1": "4-6", "container2": "7-9"}}, {"pod": "4-10"}, 4),
            (
                '{"policyName":"static","defaultCPUSet":"1-3","entries":{"pod":{"container1":"4-6",'
                '"container2":"7-9"}},"podEntries":{"pod":{"cpuSet":"4-10"}}}'
            ),
            2328898362,
        ),
        (
            of("none", "1-3", POD, {"pod": "4-6"}, 4),
            (
                '{"policyName":"none","defaultCPUSet":"1-3","entries":{"pod":{"container1":"4-6",'
                '"container2":"1-3"}},"podEntries":{"pod":{"cpuSet":"4-6"}}}'
            ),
            3246418529,
        ),
    ],
)
def test_version_4_carries_a_payload_with_its_own_checksum(known, data, expected):
    content = json.dumps({"data": data, "dataChecksum": expected}).encode()
    assert checkpoint.decode(content) == known
    with pytest.raises(CheckpointError, match="dataChecksum: checkpoint is corrupted"):
        checkpoint.decode(content.replace(b"container1", b"container7"))


def test_reading_is_as_lenient_as_go():
    content = b'{ "POLICYNAME": "none", "defaultCPUSet": "0", "unknown": [1], "defaultcpuset": "1-3" }'
    assert checkpoint.decode(content) == of("none", "1-3")
    merged = b'{"policyName":"none","entries":{"a":{"x":"1"}},"Entries":{"b":{"y":"2"}}}'
    assert checkpoint.decode(merged) == of("none", "", {"a": {"x": "1"}, "b": {"y": "2"}})


def test_what_is_no_text_is_replaced_as_by_go_and_can_be_written_again():
    found = checkpoint.decode(b'{"policyName":"\\ud800","entries":{"p\xff":{"\\ude00":"1"}}}')
    assert (found.policy, found.entries) == ("\ufffd", {"p\ufffd": {"\ufffd": cpus("1")}})
    assert checkpoint.decode(checkpoint.encode(found, 4)).entries == found.entries


def test_older_releases_read_what_stands_beside_the_payload():
    content = checkpoint.encode(of("none", "1-3", POD, {"pod": "4-6"}, 4), 4)
    assert checkpoint.decode(content, payload=False) == of("none", "1-3", POD)
    edited = content.replace(b'"1-3"', b'"1-2"', 1)
    assert checkpoint.decode(edited).version == 4
    with pytest.raises(CheckpointError, match="checksum: checkpoint is corrupted"):
        checkpoint.decode(edited, payload=False)


def test_the_newer_type_name_is_accepted_in_version_2():
    text = (
        "(*state.CPUManagerCheckpointV2){PolicyName:(string)none DefaultCPUSet:(string)1-3 "
        "Entries:(map[string]map[string]string)map[] Checksum:(checksum.Checksum)0}"
    )
    content = b'{"policyName":"none","defaultCpuSet":"1-3","checksum":%d}' % fnv1a(text)
    assert checkpoint.decode(content) == of("none", "1-3")


def test_version_3_is_never_accepted_without_a_checksum():
    content = checkpoint.encode(of("none", "1-3", POD, {"pod": "4-6"}, version=3), 3)
    assert checkpoint.decode(content.replace(b"2649431787", b"0")).version == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b'{"policyName":"static","defaultCpuSet":"0', "perhaps truncated after 41 bytes"),
        (b"[]", "the file is a JSON list"),
        (b"[" * 100_000, "not valid JSON"),
        (b"\xef\xbb\xbf{}", "not valid JSON"),
        ('{"policyName":"none"}'.encode("utf-16"), "not valid JSON"),
        (b'{"checksum":NaN}', "NaN is not a number in JSON"),
        (b'{"policyName":7}', "policyName: is int, not a string"),
        (b'{"checksum":-1}', "checksum: is -1, not a whole number"),
        (b'{"checksum":"1"}', "checksum: is '1', not a whole number"),
        (b'{"entries":[]}', "entries: is list, not an object"),
        (b'{"entries":{"p":{"c":1}}}', "entries of pod 'p', container 'c': is int"),
        (b'{"entries":{"p":[]}}', "entries of pod 'p': is list"),
        (b'{"podEntries":{"p":{"cpuSet":"x"}}}', "podEntries of pod 'p': could not parse"),
        (b'{"policyName":"none","defaultCpuSet":"1-3","checksum":1}', "checksum: checkpoint is corrupted"),
        (
            b'{"policyName":"none","defaultCpuSet":"1.3","checksum":3021697696}',
            'defaultCpuSet: could not parse default cpu set "1.3"',
        ),
        (
            (
                b'{"policyName":"none","defaultCPUSet":"1-3",'
                b'"entries":{"pod":{"container1":"4-6","container2":"asd"}},"checksum":962272150}'
            ),
            'could not parse cpuset "asd" for container "container2" in pod "pod"',
        ),
    ],
)
def test_a_file_that_stops_the_kubelet_is_explained(content, message):
    with pytest.raises(CheckpointError) as error:
        checkpoint.decode(content)
    assert message in str(error.value)
    assert "repair the file, or drain the node" in str(error.value)


def test_container_ids_cannot_become_pods():
    with pytest.raises(CheckpointError, match="version 1 names containers by id"):
        checkpoint.encode(of("none", "1-3", version=1), 2)
    with pytest.raises(CheckpointError, match="version 1 names containers by id"):
        checkpoint.encode(of("none", "1-3"), 1)


names = st.text(st.characters(codec="utf-8"), max_size=6)
sets = st.sets(st.integers(0, 300), max_size=6).map(CPUSet)


@settings(max_examples=50, deadline=None)
@given(names, sets, st.dictionaries(names, st.dictionaries(names, sets, min_size=1), min_size=1), st.data())
def test_what_is_written_is_read_again(policy, default, entries, data):
    version = data.draw(st.sampled_from([2, 3, 4]))
    pods = data.draw(st.dictionaries(names, sets, min_size=1)) if version > 2 else {}
    known = Checkpoint(policy, default, entries, pods, version)
    assert checkpoint.decode(checkpoint.encode(known, version)) == known


def test_a_ledger_becomes_the_kubelets_state():
    state, _ = node.admit(
        node.new(LAPTOP), pod("a", init("i", 2000), container("x", 1000), container("y", 500))
    )
    assert checkpoint.from_state(state) == of("static", "0,2-3,6-7", {"a": {"i": "1,5", "x": "4"}})
    assert checkpoint.from_state(node.new(LAPTOP, node.NodeConfig(policy="none"))) == of("none", "")
