"""The table of scores at the widths of terminals."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from corelane.node.explain.pod_decision import PodDecision, ScoreTerm, Source, Verdict
from corelane.view import explain

LONG = tuple(f"ip-10-0-123-{number}.eu-west-1.compute.internal" for number in (45, 46, 47))
SHORT = ("n1", "n2", "n3")
TERMS = (
    ScoreTerm("NodeResourceTopologyMatch", 2, (100.0, 99.0, 98.0)),
    ScoreTerm("PlacementQuality", 3, (90.0, 80.0, 70.0)),
    ScoreTerm("PlacementQuality.distance", 0, (10.0, 20.0, -1.0)),
)
DECISION = PodDecision(
    "ns",
    "p",
    "uid",
    Source.RECOMPUTED,
    "2026-01-01T00:00:00Z",
    Verdict.BINDING,
    "",
    terms=TERMS,
    totals=(470.0, 438.0, 406.0),
    feasible=3,
)


def shown(nodes: tuple[str, ...], width: int) -> list[str]:
    out = io.StringIO()
    decision = replace(DECISION, node=nodes[0], candidates=nodes)
    explain.show(decision, Console(file=out, width=width, highlight=False, soft_wrap=False))
    return out.getvalue().splitlines()


@pytest.mark.parametrize("width", [80, 100, 120])
@pytest.mark.parametrize("nodes", [LONG, SHORT])
def test_each_term_is_one_line_with_all_its_values(nodes: tuple[str, ...], width: int) -> None:
    lines = shown(nodes, width)
    assert max(map(len, lines)) <= width
    rows = [line.split() for line in lines]
    assert ["NodeResourceTopologyMatch", "2", "100", "99", "98"] in rows
    assert ["distance", "10", "20", "-"] in rows
    assert ["total,", "weighted", "470", "438", "406"] in rows


def test_nodes_are_numbered_where_their_names_are_too_long_and_named_where_not() -> None:
    rows = [line.split() for line in shown(LONG, 80)]
    assert ["TERM", "WEIGHT", "1", "(chosen)", "2", "3"] in rows
    assert ["1", "(chosen)", LONG[0]] in rows
    assert ["3", LONG[2]] in rows
    assert ["TERM", "WEIGHT", "n1", "(chosen)", "n2", "n3"] in [line.split() for line in shown(SHORT, 80)]
    assert ["TERM", "WEIGHT", LONG[0], "(chosen)", *LONG[1:]] in [line.split() for line in shown(LONG, 200)]
