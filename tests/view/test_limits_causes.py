"""What a container lost, by cause, in text, JSON and HTML: parts and their share of the whole."""

import json
import re

import pytest

from corelane.app.limits import record
from corelane.kernel.cpu_time.counters import Rates
from corelane.kernel.cpu_time.threads import Losses
from corelane.limits.measure import Measurement
from corelane.view.limits import charts
from corelane.view.limits import pages as limits_html
from corelane.view.limits import watch as limits_watch
from corelane.view.limits.charts import GivesWay, LossBar, UseBar

LOST = Losses(limit=600.0, neighbours=100.0, own=2000.0, scheduling=0.4, error=12.0, paused=0.25)
RATES = Rates(10.0, used=300.0, throttled=600.0, throttled_periods=100, periods=100, queued=2700.4)
MEASURED = Measurement(RATES, "shop", "web-1", "app", cpus=1, losses=LOST)


def test_text_has_every_cause_with_its_share_the_largest_first():
    assert limits_watch.divided(LOST) == (
        "threads waited 2700 ms/s: own threads 2000 (74%), limit 600 (22%), other processes 100 (4%)"
    )
    assert limits_watch.divided(Losses()) == ""
    (row,) = limits_watch.rows([MEASURED])
    assert "own threads 2000, limit 600, other processes 100" in row


def test_json_adds_up_and_is_read_back(tmp_path):
    tree = limits_watch.plain([MEASURED], [], 10.0, "now")
    lost = tree["containers"][0]["lostTo"]
    parts = [lost[key] for _, key, _ in limits_watch.causes_of(LOST)]
    assert sum(parts) == lost["totalMsPerSecond"] == 2700.4
    (tmp_path / "record.json").write_text(json.dumps(tree))
    (read,), _ = record.read(tmp_path / "record.json")
    assert read.losses is not None
    assert (read.losses.own, read.losses.neighbours, read.losses.error) == (2000, 100, 12)


def test_html_has_a_table_of_causes():
    tree = limits_watch.plain([MEASURED], [], 10.0, "now")
    page = limits_html.watched([tree], limits_watch.HEADINGS, limits_watch.rows([MEASURED]))
    assert "What held it back" in page
    assert "2000 (74%)" in page
    assert "600 (22%)" in page


def bars(picture: str) -> list[tuple[float, float, str]]:
    """Left edge and width of every bar with a hint of its own."""
    pattern = r'<rect [^>]*x="([0-9.]+)"[^>]* width="([0-9.]+)"[^>]*><title>([^<]*: [^<]*)</title>'
    return [(float(x), float(width), hint) for x, width, hint in re.findall(pattern, picture)]


def test_the_picture_has_a_bar_for_every_cause_as_wide_as_its_part():
    tree = limits_watch.plain([MEASURED], [], 10.0, "now")
    page = limits_html.watched([tree], limits_watch.HEADINGS, limits_watch.rows([MEASURED]))
    found = bars(page)
    assert [hint for *_, hint in found] == [
        "shop/web-1/app: limit 600 ms/s (22%)",
        "shop/web-1/app: other processes 100 ms/s (4%)",
        "shop/web-1/app: own threads 2,000 ms/s (74%)",
    ]
    (limit, others, own) = found
    assert own[1] / limit[1] == pytest.approx(2000 / 600, rel=0.01)
    assert others[1] / limit[1] == pytest.approx(100 / 600, rel=0.01)
    assert others[0] == pytest.approx(limit[0] + limit[1], abs=0.2), "side by side"
    assert "scheduling" not in page[page.index("<svg") :].split("</svg>")[0], "nothing of it to see"


def test_containers_share_one_scale_and_those_without_losses_have_no_bar():
    two = [LossBar("a", {"limit": 400.0}), LossBar("b", {"neighbours": 100.0, "limit": 0.0})]
    found = bars(charts.losses(two))
    assert len(found) == 2
    assert found[0][1] == pytest.approx(4 * found[1][1], rel=0.01)
    none = Measurement(RATES, "shop", "idle", "app", losses=Losses())
    tree = limits_watch.plain([none], [], 10.0, "now")
    assert "<svg" not in limits_html.watched([tree], ("CONTAINER",), [("idle",)])


def test_a_request_is_shown_with_what_it_gives_and_what_gives_way():
    own = [
        UseBar("uses now", 90.0, "c-bad"),
        UseBar("needs", 150.0, "c-accent", 100.0),
        UseBar("then", 150.0, "c-good"),
    ]
    found = bars(charts.request("CPU time", own, [GivesWay("etl/batch", 900.0, 840.0)]))
    hints = [hint for *_, hint in found]
    assert hints[:3] == ["uses now: 90", "needs: 100 to 150", "then: 150"]
    assert hints[3:] == ["etl/batch: 900 now, 840 then"] * 2
    widths = [width for _, width, _ in found]
    assert widths[2] / widths[0] == pytest.approx(150 / 90, rel=0.01)
    assert widths[4] / widths[3] == pytest.approx(840 / 900, rel=0.01)
    assert found[1][0] > found[0][0], "a range begins at its low end"


def test_without_the_load_of_its_cpus_the_reasons_are_whole_sentences():
    """In records of older versions."""
    lost = Losses(neighbours=200.0, hypervisor=80.0)
    (row,) = limits_watch.plain([Measurement(RATES, losses=lost)], [], 10.0, "now")["containers"]
    assert "waits 200 ms/s for a CPU while other processes run; " in row["why"]
    assert "waits 80 ms/s for a CPU while the hypervisor takes some of its CPUs" in row["why"]
