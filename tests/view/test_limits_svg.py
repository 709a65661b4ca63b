"""Pictures of slices: everything that is drawn has a meaning in the legend."""

import re
from xml.etree import ElementTree

import pytest

from corelane.limits.model.clock import MS
from corelane.limits.model.timeline import Refill, Timeline, TimelineSpan
from corelane.view.limits.simulation import Panel, timeline_svg


def panel(ran=(), throttled=(), refills=(), cpus=2):
    line = Timeline(0, 200 * MS, tuple(ran), tuple(throttled), tuple(refills))
    return Panel("as it is", cpus, line)


def spans(group, *times):
    return [TimelineSpan(0, group, begin * MS, end * MS, None) for begin, end in times]


def words(picture):
    root = ElementTree.fromstring(picture)
    return [one.text for one in root.iter("{http://www.w3.org/2000/svg}text")]


def stops(picture):
    return [text for text in words(picture) if re.fullmatch(r"[0-9.]+ ms", text) and text != "0 ms"]


def test_one_limit_has_lines_of_one_kind():
    picture = timeline_svg(
        "x",
        [panel(spans("a/app", (0, 20), (100, 120)), refills=[Refill("a/app", 0), Refill("a/app", 100 * MS)])],
    )
    assert "a period begins" in words(picture)
    assert "stroke:" not in picture.partition("</style>")[2]


def test_limits_of_their_own_have_lines_in_colours_that_the_legend_names():
    picture = timeline_svg(
        "x", [panel(spans("a/app", (0, 20)), refills=[Refill("a", 30 * MS), Refill("a/app", 70 * MS)])]
    )
    assert {"a period of a begins", "a period of a/app begins"} <= {*words(picture)}
    colours = re.findall(r'style="stroke:(#[0-9a-f]+)"', picture)
    assert len(colours) == 4, "each in the legend and at its moment"
    assert len(set(colours)) == 2


def test_who_never_ran_has_no_box_in_the_legend():
    picture = timeline_svg("x", [panel(spans("a/app", (0, 20)), refills=[Refill("a", 30 * MS)])])
    assert "a" not in words(picture)
    assert "a/app" in words(picture)


def test_every_end_of_a_quota_is_told_in_the_order_of_time_where_there_is_room():
    picture = timeline_svg(
        "x",
        [
            panel(
                [*spans("b/app", (0, 20)), *spans("a/app", (100, 160))],
                [*spans("b/app", (20, 100)), *spans("a/app", (160, 200))],
                [Refill("b/app", 0), Refill("a/app", 100 * MS)],
            )
        ],
    )
    assert stops(picture) == ["20 ms", "160 ms"]


@pytest.mark.parametrize("count", [1, 12, 40])
def test_a_long_legend_takes_more_rows_and_stays_inside(count):
    names = [f"pod-{k:02}/container-with-a-name" for k in range(count)]
    picture = timeline_svg("x", [panel([one for name in names for one in spans(name, (0, 1))])])
    root = ElementTree.fromstring(picture)
    width, height = float(root.get("width")), float(root.get("height"))
    for one in root.iter("{http://www.w3.org/2000/svg}text"):
        assert float(one.get("y")) < height
        if one.text in names:
            assert float(one.get("x")) + 6 * len(one.text) < width
    lanes = [
        float(one.get("y"))
        for one in root.iter("{http://www.w3.org/2000/svg}rect")
        if one.get("class") == "lane"
    ]
    legend = [
        float(one.get("y")) for one in root.iter("{http://www.w3.org/2000/svg}text") if one.text in names
    ]
    assert max(legend) < min(lanes)


def test_names_are_escaped():
    assert "<b>" not in timeline_svg("<b>", [panel(spans("<b>/&", (0, 1)))])
