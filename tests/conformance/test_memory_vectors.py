"""555 nodes with CPU, memory and device managers, as Kubernetes v1.36.2's own code ran them.

Every admission, refusal with reason and message, start and end; after each the CPUs, memory blocks, the
memory of every NUMA node and the devices. Rows with `podLevelManagers` have gate PodLevelResourceManagers on,
rows with `narrowDevices` the device hints of 1.37.
"""

import gzip
import json
from copy import deepcopy
from pathlib import Path

import pytest

from conformance.nodes import replay_memory
from conformance.state_files import replay_files

DATA = Path(__file__).parents[1] / "data"


def rows(name):
    return [json.loads(line) for line in gzip.open(DATA / f"{name}.jsonl.gz")]


ROWS = rows("kubelet_memory")
FILES = rows("kubelet_state_files")
TOPOLOGIES = json.loads((DATA / "topologies.json").read_text())


def test_a_node_hands_out_memory_and_devices_as_the_kubelet_does():
    replay = replay_memory(ROWS, TOPOLOGIES)
    assert [str(difference) for difference in replay.differences[:3]] == []
    assert (replay.passed, replay.total) == (555, 555)


@pytest.mark.parametrize("key", ["default", "memory", "nodes", "devices"])
def test_another_state_after_a_step_is_a_difference(key):
    row = deepcopy(next(row for row in ROWS if row["expect"].get("steps")))
    row["expect"]["steps"][-1][key] = "other"
    replay = replay_memory([row], TOPOLOGIES)
    assert replay.passed == 0
    assert f'"{key}":"other"' in str(replay.differences[0])


def test_the_recording_has_every_policy_scope_and_refusal():
    assert len({(row["topologyPolicy"], row["topologyScope"]) for row in ROWS}) == 8
    assert (
        {row["podLevelManagers"] for row in ROWS} == {row["narrowDevices"] for row in ROWS} == {True, False}
    )
    reasons = {step.get("reason") for row in ROWS for step in row["expect"].get("steps", ())}
    assert reasons >= {
        "TopologyAffinityError",
        "UnexpectedAdmissionError",
        "SMTAlignmentError",
        "EmptyPodSharedPoolError",
    }


def test_files_that_the_kubelet_wrote_are_read_as_it_reads_them():
    replay = replay_files(FILES)
    assert [str(difference) for difference in replay.differences[:3]] == []
    assert (replay.passed, replay.total) == (126, 126)


@pytest.mark.parametrize("kind", ["cpu", "memory", "memory-start"])
def test_an_altered_file_is_a_difference(kind):
    row = deepcopy(next(row for row in FILES if row["kind"] == kind))
    if kind == "memory-start":
        row["start"]["error"] += "another error"
    else:
        row["text"] = row["text"].replace('"policyName":"', '"policyName":"x')
    assert replay_files([row]).passed == 0
