"""What a container lost, by cause, in text, JSON and HTML: parts and their share of the whole."""

import json

from corelane.app.limits import advise_record
from corelane.limits.measure.losses import Losses
from corelane.limits.measure.throttling import Measurement, Rates
from corelane.view import limits_html, limits_watch

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
    (read,) = advise_record.read(tmp_path / "record.json")
    assert read.losses is not None
    assert (read.losses.own, read.losses.neighbours, read.losses.error) == (2000, 100, 12)


def test_html_has_a_table_of_causes():
    tree = limits_watch.plain([MEASURED], [], 10.0, "now")
    page = limits_html.watched([tree], limits_watch.HEADINGS, limits_watch.rows([MEASURED]))
    assert "What held it back" in page
    assert "2000 (74%)" in page
    assert "600 (22%)" in page
