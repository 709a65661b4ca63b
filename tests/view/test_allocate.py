"""The answer of an allocation on a terminal, as JSON and as a drawing."""

import io
import json
import re

import pytest

from corelane.cpuset import CPUSet
from corelane.machine.spec import parse_spec
from corelane.view import allocate, tables
from corelane.view.allocate import (
    Allocation,
    Candidate,
    ContainerLine,
    HintSet,
    Memory,
    Merge,
    ProviderHints,
    Quality,
    Step,
)
from corelane.view.owners import Owner

MACHINE = parse_spec("socket:2 numa:1 core:4 smt:2")


def answer(**changes):
    line = ContainerLine(
        "[red]app",
        "app",
        2,
        CPUSet.parse("1,9"),
        (Step("core", "whole cores", "1,9"),),
        (Candidate("0", 7, preferred=True, chosen=True), Candidate("0-1", 15, preferred=False, chosen=False)),
        Quality(1, 1, 1, 0),
        CPUSet.parse("2,10"),
        Quality(1, 1, 1, 0),
    )
    fields = {
        "machine": MACHINE,
        "pod": "default/web",
        "qos": "Guaranteed",
        "policy": "static",
        "admitted": True,
        "reason": "",
        "message": "",
        "containers": (line,),
        "usable": MACHINE.usable,
        "reserved": CPUSet([0]),
        "free": CPUSet.parse("1-15"),
        "shared": CPUSet.parse("0,2-7,10-15"),
        "owners": {8: Owner("old/one", "Guaranteed")},
        "notes": ("a note",),
    }
    return Allocation(**(fields | changes))


def shown(found):
    out = io.StringIO()
    allocate.show(found, tables.console(out))
    return out.getvalue()


def test_the_table_has_cpus_steps_candidates_runner_up_map_and_notes():
    text = shown(answer())
    for word in ("[red]app", "1,9", "2,10", "whole cores", "chosen", "wider than", "old/one", "note: a note"):
        assert word in text


def test_a_refusal_comes_first():
    text = shown(answer(admitted=False, reason="OutOfcpu", message="too few", containers=()))
    assert text.startswith("default/web is refused: OutOfcpu: too few")


def test_json_has_stable_keys_and_list_strings():
    plain = json.loads(json.dumps(allocate.plain(answer())))
    assert plain["containers"][0]["cpus"] == "1,9"
    assert plain["containers"][0]["runnerUp"] == "2,10"
    assert plain["containers"][0]["candidates"][0] == {
        "nodes": "0",
        "free": 7,
        "preferred": True,
        "chosen": True,
    }
    assert plain["sharedPool"] == "0,2-7,10-15"


def test_the_drawing_names_all_owners_and_escapes_them():
    text = allocate.draw(answer(pod="default/<web>"))
    assert "default/&lt;web&gt;" in text
    assert "old/one" in text


@pytest.mark.parametrize(
    ("cpus", "expected", "text"),
    [
        ("1,9", Quality(1, 1, 1, 0), "1 NUMA node, 1 L3 domain, 1 core"),
        ("1-2,9", Quality(1, 1, 2, 1), "1 NUMA node, 1 L3 domain, 2 cores (1 of them in part)"),
        ("3-4", Quality(2, 2, 2, 2), "2 NUMA nodes, 2 L3 domains, 2 cores (2 of them in part)"),
    ],
)
def test_quality_counts_the_units_that_cpus_touch(cpus, expected, text):
    found = allocate.quality(MACHINE, CPUSet.parse(cpus))
    assert found == expected
    assert str(found) == text


MERGE = Merge(
    (
        ProviderHints("[bold]nic", 1, (HintSet("0", True), HintSet("0-1", False)), 9),
        ProviderHints("cpu", 2, word="does not care"),
        ProviderHints("memory", 3 << 29, (HintSet("1", True),), 1),
    ),
    "0-1",
    preferred=False,
    admitted=True,
)


def with_more(merge=MERGE, **changes):
    memory = (Memory("hugepages-1Gi", 2 << 30, "0-1"),)
    line = ContainerLine(
        "app", "app", 0, CPUSet(), (Step("shared", "shares"),), memory=memory, devices={"<nic>": ["eth0"]}
    )
    return answer(containers=(line,), merge=merge, **changes)


def test_hints_of_every_provider_and_the_winner_are_in_the_table():
    text = shown(with_more())
    for words in ("NUMA nodes 0-1 chosen (not preferred)", "[bold]nic", "0-1 and 7 more", "does not care"):
        assert words in text
    for words in ("1536Mi", "2Gi", "NUMA node 0-1", "<nic>", "eth0"):
        assert words in text


def test_a_merge_without_a_set_in_common_says_so():
    refused = Merge(MERGE.providers, "", preferred=False, admitted=False)
    assert "refused: no preferred set in common" in shown(with_more(refused))


def test_json_has_the_merge_memory_and_devices():
    plain = json.loads(json.dumps(allocate.plain(with_more())))
    assert plain["merge"]["providers"][0]["sets"][0] == {"nodes": "0", "preferred": True}
    assert plain["merge"]["nodes"] == "0-1"
    (only,) = plain["containers"]
    assert only["memory"] == [{"resource": "hugepages-1Gi", "size": 2 << 30, "nodes": "0-1"}]
    assert only["devices"] == {"<nic>": ["eth0"]}
    assert only["merge"] is None


def test_the_drawing_has_them_below_the_machine_within_its_bounds():
    text = allocate.draw(with_more())
    assert "app: &lt;nic&gt; eth0" in text
    assert "the whole pod: NUMA nodes 0-1 chosen (not preferred)" in text
    height = int(re.search(r'height="([0-9]+)"', text)[1])
    lowest = max(float(y) for y in re.findall(r'<text class="fg" x="[0-9.]+" y="([0-9.]+)"', text))
    assert lowest < height
