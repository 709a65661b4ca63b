"""555 nodes with CPU, memory and device managers, as Kubernetes v1.36.2's own code ran them.

Every admission, refusal with reason and message, start and end; after each the CPUs, memory blocks, the
memory of every NUMA node and the devices. Rows with `podLevelManagers` have gate PodLevelResourceManagers on,
rows with `narrowDevices` the device hints of 1.37.
"""

import pytest

from support import memory_vectors

ROWS = list(memory_vectors.rows())
MACHINES = memory_vectors.machines()


@pytest.mark.parametrize("topology", sorted({row["topo"] for row in ROWS}))
def test_a_node_hands_out_memory_and_devices_as_the_kubelet_does(topology):
    rows = [row for row in ROWS if row["topo"] == topology]
    found = [memory_vectors.difference(row, MACHINES[topology]) for row in rows]
    assert not any(found), "\n".join(filter(None, found))[:4000]


def test_the_recording_has_every_policy_scope_and_refusal():
    assert len(ROWS) == 555
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
