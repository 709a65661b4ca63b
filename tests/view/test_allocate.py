"""The answer of an allocation on a terminal, as JSON and as a drawing."""

import io
import json

import pytest

from corelane.cpuset import CPUSet
from corelane.machine.spec import parse_spec
from corelane.view import allocate, tables
from corelane.view.allocate import Allocation, Candidate, ContainerLine, Quality, Step
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
