"""The memory manager's state file, against files that 1.36 wrote and numbers of upstream's unit tests."""

import json

import pytest

from corelane.node.kubelet import memory_checkpoint
from corelane.node.kubelet.memory_checkpoint import Block, NodeMemory, Table
from corelane.node.kubelet.statefile import CheckpointError
from support import kubelet_files

WRITTEN = kubelet_files.written("memory")
NODE = {
    "numberOfAssignments": 0,
    "memoryMap": {
        "memory": {"total": 2048, "systemReserved": 512, "allocatable": 1536, "reserved": 512, "free": 1024}
    },
    "cells": [],
}
BLOCK = {"numaAffinity": [0], "type": "memory", "size": 512}
PLAIN = {"policyName": "static", "machineState": {"0": NODE}, "entries": {"pod": {"container1": [BLOCK]}}}
PODS = {"podEntries": {"pod": {"memoryBlocks": [BLOCK]}}}


def decode(value):
    content = value if isinstance(value, bytes) else json.dumps(value).encode()
    return memory_checkpoint.decode(content)


def payload(value, expected, **more):
    data = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
    return {"data": data, "dataChecksum": expected, **more}


@pytest.mark.parametrize("file", WRITTEN)
def test_one_changed_number_breaks_the_checksum(file):
    fields = json.loads(file.content)
    name = "dataChecksum" if "data" in fields else "checksum"
    if name == "dataChecksum":
        fields["data"] = fields["data"].replace('"cells":[0]', '"cells":[1]')
    else:
        fields["machineState"]["77"] = {}
    with pytest.raises(CheckpointError, match=f"{name}: checkpoint is corrupted; .*drain the node"):
        decode(fields)
    assert memory_checkpoint.decode(json.dumps(fields).encode(), verify=False).policy


def test_every_value_of_the_file_is_there():
    found = decode({**PLAIN, **PODS, "checksum": 1278640530})
    block = Block((0,), "memory", 512)
    assert found.machine == {0: NodeMemory({"memory": Table(2048, 512, 1536, 512, 1024)}, 0, ())}
    assert found.entries == {"pod": {"container1": (block,)}}
    assert found.pods == {"pod": (block,)}


def test_blocks_of_pods_in_version_1_are_left_out_as_the_kubelet_does():
    assert decode({**PLAIN, **PODS, "checksum": 4215593881}).pods == {}
    with pytest.raises(CheckpointError, match="checksum: checkpoint is corrupted"):
        decode({**PLAIN, **PODS, "checksum": 5})


def test_reading_is_as_lenient_as_go():
    found = decode(b'{"POLICYNAME":"None","machinestate":null,"entries":{"p":null},"extra":[{}]}')
    assert (found.policy, found.machine, found.entries) == ("None", {}, {"p": {}})
    assert decode(b'{"machineState":{"0":null,"01":{"cells":null,"memoryMap":{"memory":null}}}}').machine == {
        0: NodeMemory({}),
        1: NodeMemory({"memory": Table(0, 0, 0, 0, 0)}),
    }


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b"\n", "the file is empty"),
        (WRITTEN[3].content[:200], "the file is not valid JSON, perhaps truncated after 200 bytes"),
        (b"[]", "the file is a JSON list"),
        (b'{"policyName":7}', "policyName: is int, not a string"),
        (b'{"machineState":[]}', "machineState: is list, not an object"),
        (b'{"machineState":{"zero":{}}}', "machineState: the key 'zero' is not a number"),
        (b'{"machineState":{"0":{"cells":{}}}}', "machineState.0.cells: is an object, not a list"),
        (b'{"machineState":{"0":{"cells":["0"]}}}', "machineState.0.cells[0]: is '0', not a whole number"),
        (
            b'{"machineState":{"0":{"memoryMap":{"memory":{"free":-1}}}}}',
            "machineState.0.memoryMap.memory.free: is -1, not a whole number of Go's type uint64",
        ),
        (b'{"machineState":{"0":{"memoryMap":{"memory":{"free":1.5}}}}}', "memory.free: is 1.5"),
        (
            b'{"machineState":{},"entries":{"p":{"c":[{"size":"1"}]}}}',
            "entries.p.c[0].size: is '1'",
        ),
        (b'{"machineState":{},"podEntries":{"p":[]}}', "podEntries.p: is list, not an object"),
        (b'{"data":"{","dataChecksum":3624190}', "dataChecksum: checkpoint is corrupted"),
        (b'{"data":7}', "data: is int, not a string"),
        (b'{"machineState":{},"checksum":"1"}', "checksum: is '1', not a whole number"),
    ],
)
def test_a_file_that_stops_the_kubelet_is_explained(content, message):
    with pytest.raises(CheckpointError) as error:
        decode(content)
    assert message in str(error.value)
    assert "drain the node and remove the file" in str(error.value)


def test_a_payload_that_is_broken_under_a_right_checksum_is_named():
    from corelane.node.kubelet.statefile import payload_checksum

    with pytest.raises(CheckpointError, match="data is not valid JSON, perhaps truncated"):
        decode(payload("{", payload_checksum("{")))


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"{", b'{"data":7}', b'{"data":"["}', b'"x"'])
def test_what_is_no_memory_state_is_told_apart(content):
    assert not memory_checkpoint.is_memory(content)


@pytest.mark.parametrize("file", kubelet_files.written("cpu"))
def test_a_cpu_managers_state_is_told_apart(file):
    assert not memory_checkpoint.is_memory(file.content)
