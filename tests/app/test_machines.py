import json

import pytest
import yaml
from click.testing import CliRunner

from corelane import node
from corelane.app import machines
from corelane.cli import main
from corelane.kube import keys, translate
from corelane.kube.translate.machine_annotation import detail
from corelane.machine import MachineError
from corelane.machine.sources import load

SPEC = "socket:2 numa:2 l3:2 core:4 smt:2"
KIND = {"apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology"}
SHAPE = ("core", "socket", "numa")


def ours():
    machine = load(SPEC)
    return translate.topology(machine, "ours", node.new(machine))


def koordinators():
    annotations = {keys.CPU_TOPOLOGY: detail(load(SPEC))}
    return {**KIND, "metadata": {"name": "koord", "annotations": annotations}, "zones": []}


def counting(*counts):
    zones = [
        {"name": f"node-{i}", "type": "Node", "resources": [{"name": "cpu", "capacity": n}]}
        for i, n in enumerate(counts)
    ]
    return {**KIND, "metadata": {"name": "plain"}, "zones": zones}


def written(tmp_path, tree, form):
    file = tmp_path / f"nrt.{form}"
    file.write_text(json.dumps(tree) if form == "json" else yaml.safe_dump(tree))
    return str(file)


@pytest.mark.parametrize("form", ["json", "yaml"])
@pytest.mark.parametrize("made", [ours, koordinators])
def test_a_published_node_is_a_machine(tmp_path, made, form):
    machine = machines.load(written(tmp_path, made(), form))
    for unit in SHAPE:
        assert [getattr(cpu, unit) for cpu in machine.cpus] == [getattr(cpu, unit) for cpu in load(SPEC).cpus]
    assert machine.nodes[0].distances[3] > machine.nodes[0].distances[0] == 10


def test_zones_with_only_counts_make_a_machine_with_a_note(tmp_path):
    machine = machines.load(written(tmp_path, counting(4, "2500m", 0), "yaml"))
    assert [str(one.cpus) for one in machine.nodes] == ["0-3", "4-5", ""]
    assert "assumed" in machine.notes[0]


def cranes(**zone):
    first = {"name": "node0", "type": "Node", "costs": [{"name": "node0", "value": 10}]} | zone
    second = {"name": "node1", "type": "Node", "resources": {"capacity": {"cpu": "3900m", "memory": "4Gi"}}}
    policy = {"cpuManagerPolicy": "Static", "topologyManagerPolicy": "None"}
    api = {"apiVersion": "topology.crane.io/v1alpha1", "kind": "NodeResourceTopology"}
    socket = {"name": "socket0", "type": "Socket"}
    named = {"metadata": {"name": "worker-7"}, "craneManagerPolicy": policy}
    return {**api, **named, "zones": [socket, first, second]}


def test_gocranes_object_is_a_machine_with_a_note(tmp_path):
    capacity = {"resources": {"capacity": {"cpu": "4", "memory": "8Gi"}}}
    machine = machines.load(written(tmp_path, cranes(**capacity), "yaml"))
    assert [(str(one.cpus), one.memory) for one in machine.nodes] == [("0-3", 8 << 30), ("4-6", 4 << 30)]
    assert [one.distances for one in machine.nodes] == [{0: 10}, {0: 20, 1: 10}]
    assert "assumed" in machine.notes[0]


@pytest.mark.parametrize(
    ("zone", "told"),
    [
        ({"name": "node-0"}, "zones[1].name: invalid value 'node-0'"),
        ({"name": "node1"}, "zones[2].name: invalid value 'node1': another zone has this name"),
        ({"resources": {"capacity": {"cpu": "-1"}}}, "zones[1].resources.capacity.cpu: invalid value '-1'"),
        ({"resources": 3}, "Expected `object`, got `int` - at `$.zones[1].resources`"),
    ],
)
def test_an_invalid_object_of_gocrane_is_an_error_of_one_line(tmp_path, zone, told):
    with pytest.raises(MachineError) as refused:
        machines.load(written(tmp_path, cranes(**zone), "json"))
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_name_chooses_one_of_a_list(tmp_path):
    file = written(tmp_path, {"kind": "List", "items": [ours(), counting(3)]}, "yaml")
    assert len(machines.load(f"{file}#plain").cpus) == 3
    for source, message in ((file, r"several \(ours, plain\)"), (f"{file}#x", "none named x")):
        with pytest.raises(MachineError, match=message):
            machines.load(source)


def test_other_files_are_left_to_the_other_sources(tmp_path):
    spec = tmp_path / "spec.txt"
    spec.write_text(SPEC)
    assert machines.load(str(spec)).cpus == machines.load(SPEC).cpus == load(SPEC).cpus


@pytest.mark.parametrize(
    "text",
    [
        "kind: NodeResourceTopology\n metadata: [}",
        '{"kind": "NodeResourceTopology", "zones": [',
        '{"kind": "NodeResourceTopology", "zones": 3}',
        "kind: NodeResourceTopology\nmetadata: {annotations: 7}",
        yaml.safe_dump(counting()),
        yaml.safe_dump(counting(-1)),
        yaml.safe_dump(counting(10**12)),
        yaml.safe_dump(counting("many")),
        yaml.safe_dump({**koordinators(), "metadata": {"annotations": {keys.CPU_TOPOLOGY: "{"}}}),
        yaml.safe_dump(
            {
                **KIND,
                "metadata": {
                    "annotations": {keys.CPU_TOPOLOGY: '{"detail":[{"id":-1,"core":0,"socket":0,"node":0}]}'}
                },
            }
        ),
        "kind: List\nitems: [{kind: NodeResourceTopology, zones: {1: 2}}]",
    ],
)
def test_an_invalid_object_is_an_error_of_one_line(tmp_path, text):
    file = tmp_path / "broken.yaml"
    file.write_text(text)
    result = CliRunner().invoke(main, ["topology", "--machine", str(file)])
    assert result.exit_code == 2
    assert result.output.startswith(f"Error: {file}: ")
    assert result.output.count("\n") == 1


def test_allocate_accepts_a_published_node(tmp_path):
    file = written(tmp_path, koordinators(), "json")
    result = CliRunner().invoke(main, ["allocate", "--cpus", "2", "--machine", file, "-o", "json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.output)["admitted"]
