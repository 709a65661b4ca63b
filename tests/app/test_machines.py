import json

import pytest
import yaml
from click.testing import CliRunner

from corelane import node
from corelane.app import machines
from corelane.cli import main
from corelane.kube import keys, translate
from corelane.kube.translate.machines import detail
from corelane.machine import MachineError, load

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


def test_zones_that_only_count_make_a_machine_with_a_note(tmp_path):
    machine = machines.load(written(tmp_path, counting(4, "2500m", 0), "yaml"))
    assert [str(one.cpus) for one in machine.nodes] == ["0-3", "4-5", ""]
    assert "assumed" in machine.notes[0]


def test_of_a_list_one_is_chosen_by_name(tmp_path):
    file = written(tmp_path, {"kind": "List", "items": [ours(), counting(3)]}, "yaml")
    assert len(machines.load(f"{file}#plain").cpus) == 3
    for source, message in ((file, r"several \(ours, plain\)"), (f"{file}#x", "none named x")):
        with pytest.raises(MachineError, match=message):
            machines.load(source)


def test_what_is_no_such_object_goes_to_the_other_sources(tmp_path):
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
def test_a_broken_object_is_one_line(tmp_path, text):
    file = tmp_path / "broken.yaml"
    file.write_text(text)
    result = CliRunner().invoke(main, ["topology", "--machine", str(file)])
    assert result.exit_code == 2
    assert result.output.startswith(f"Error: {file}: ")
    assert result.output.count("\n") == 1


def test_allocate_answers_for_a_published_node(tmp_path):
    file = written(tmp_path, koordinators(), "json")
    result = CliRunner().invoke(main, ["allocate", "--cpus", "2", "--machine", file, "-o", "json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.output)["admitted"]
