"""The answer of `allocate` on a terminal, as JSON and as a drawing."""

import io
import json
import re
from dataclasses import replace

import pytest

from corelane import node
from corelane.cpuset import CPUSet
from corelane.machine.spec import parse_spec
from corelane.node.config import NodeConfig
from corelane.node.explain.pod_explanation import HintMerge, HintSet, Locality, ProviderHints, locality
from corelane.node.explain.what_if import explain
from corelane.placement.memory_blocks import MemoryBlock
from corelane.view import allocate, tables
from support.node_asks import container, pod

MACHINE = parse_spec("socket:2 numa:1 core:4 smt:2")


def answer(cpus=2000, **changes):
    state = node.new(MACHINE, NodeConfig(reserved=CPUSet([0]), numa=node.TopologyOptions("best-effort")))
    state, _ = node.admit(state, pod("old", container("one", 1000)))
    _, found = explain(state, pod("web", container("[red]app", cpus)), ("a note",))
    return replace(found, **changes)


def shown(found):
    out = io.StringIO()
    allocate.show(found, tables.console(out))
    return out.getvalue()


def test_the_table_has_cpus_steps_candidates_runner_up_map_and_notes():
    text = shown(answer())
    words = ("[red]app", "1,9", "2,10", "whole cores", "chosen", "more nodes than", "old/one", "note: a note")
    for word in words:
        assert word in text


def test_a_rejected_pod_is_reported_first_with_reason_and_message():
    text = shown(answer(17000))
    assert text.startswith("pod test/web (Guaranteed): rejected: OutOfcpu: Node didn't have enough")


def test_json_has_stable_keys_and_cpu_lists():
    plain = json.loads(json.dumps(allocate.plain(answer())))
    (only,) = plain["containers"]
    assert (only["cpus"], only["runnerUp"]) == ("1,9", "2,10")
    assert only["candidates"][0] == {"nodes": "0", "free": 6, "preferred": True, "chosen": True}
    assert plain["sharedPool"] == "0,2-7,10-15"


def test_the_drawing_names_all_owners_and_escapes_them():
    found = answer()
    text = allocate.draw(replace(found, request=replace(found.request, name="<web>")))
    assert "test/&lt;web&gt;" in text
    assert "old/one" in text


@pytest.mark.parametrize(
    ("cpus", "expected"),
    [
        ("1,9", Locality(1, 1, 1, 0)),
        ("1-2,9", Locality(1, 1, 2, 1)),
        ("3-4", Locality(2, 2, 2, 2)),
    ],
)
def test_locality_counts_the_units_that_cpus_touch(cpus, expected):
    assert locality(MACHINE, CPUSet.parse(cpus)) == expected


MERGE = HintMerge(
    (
        ProviderHints("[bold]nic", 1, (HintSet("0", True), HintSet("0-1", False)), 9),
        ProviderHints("cpu", 2, word="no preference"),
        ProviderHints("memory", 3 << 29, (HintSet("1", True),), 1),
    ),
    "0-1",
    preferred=False,
    admitted=True,
)


def with_resources(merge=MERGE):
    found = answer()
    memory = (MemoryBlock("hugepages-1Gi", 2 << 30, CPUSet([0, 1])),)
    only = replace(found.containers[0], name="app", memory=memory, devices={"<nic>": ["eth0"]})
    return replace(found, containers=(only,), merge=merge)


def test_the_table_has_the_hints_of_every_provider_and_the_chosen_nodes():
    text = shown(with_resources())
    for words in ("NUMA nodes 0-1 chosen by the topology manager (not preferred)", "[bold]nic"):
        assert words in text
    for words in ("0-1 and 7 more", "no preference", "1536Mi", "2Gi", "NUMA nodes 0-1", "<nic>", "eth0"):
        assert words in text


def test_hints_without_common_nodes_are_rejected_by_the_topology_manager():
    refused = HintMerge(MERGE.providers, "", preferred=False, admitted=False)
    assert "rejected by the topology manager: the resources have no" in shown(with_resources(refused))


def test_json_has_the_merge_memory_and_devices():
    plain = json.loads(json.dumps(allocate.plain(with_resources())))
    assert plain["merge"]["providers"][0]["sets"][0] == {"nodes": "0", "preferred": True}
    assert plain["merge"]["providers"][0]["wanted"] == 1
    assert plain["merge"]["nodes"] == "0-1"
    (only,) = plain["containers"]
    assert only["memory"] == [{"resource": "hugepages-1Gi", "size": 2 << 30, "nodes": "0-1"}]
    assert only["devices"] == {"<nic>": ["eth0"]}
    assert only["merge"] is None


def test_the_drawing_has_captions_below_the_machine_within_its_bounds():
    text = allocate.draw(with_resources())
    assert "app: &lt;nic&gt; eth0" in text
    assert "pod: NUMA nodes 0-1 chosen by the topology manager (not preferred)" in text
    height = int(re.search(r'height="([0-9]+)"', text)[1])
    lowest = max(float(y) for y in re.findall(r'<text class="fg" x="[0-9.]+" y="([0-9.]+)"', text))
    assert lowest < height
