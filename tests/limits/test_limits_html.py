"""`-o html` is one file: well-formed, escaped, no scripts, links or requests; its figures are the table's."""

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

from corelane.cli import main
from corelane.view import html_page
from corelane.view.limits import charts
from corelane.view.limits import pages as limits_html
from corelane.view.limits.charts import DelayCurve, GivesWay, LossBar, RangeBar, RoundSample, UseBar
from support.cpu_groups import Clock, counters, quiet, use_clock
from support.kubepods import Kubepods

HOSTILE = "</td><script src=x></script>\"'&\x1b[31m\x00\u202e<img onerror=x>"
EXAMPLE = Path(__file__).parents[2] / "examples/limits/long-request.yaml"
_ALLOWED = """
    html head meta title style body h1 h2 h3 p div footer pre table thead tbody tr th td ul li
    svg g rect path line text defs pattern
"""
ALLOWED = set(_ALLOWED.split())


def run(*args: object) -> Result:
    return CliRunner().invoke(main, ["limits", *map(str, args)])


def parsed(page: str) -> ElementTree.Element:
    """The page's tree; whatever could run or load something fails."""
    root = ElementTree.fromstring(page)
    assert {each.tag for each in root.iter()} <= ALLOWED
    for each in root.iter():
        assert not {name for name in each.attrib if name.startswith("on") or name in ("src", "href", "style")}
    assert not re.search(r"https?:|//|@import|url\((?!#)|[\x00-\x08\x0b-\x1f\u202e]", page)
    policy = [one.get("content") for one in root.iter("meta") if one.get("http-equiv")]
    assert policy == ["default-src 'none'; style-src 'unsafe-inline'"]
    assert "prefers-color-scheme:dark" in page
    return root


def cells(root: ElementTree.Element) -> set[str]:
    return {"".join(one.itertext()) for one in root.iter("td")}


def headings(root: ElementTree.Element) -> list[str]:
    return [one.text or "" for one in root.iter("h2")]


def test_a_simulation_has_its_table_delays_before_and_after_and_slices():
    result = run("simulate", EXAMPLE, "--variant", "no-limit", "-o", "html")
    assert result.exit_code == 0, result.output
    root = parsed(result.stdout)
    assert headings(root) == ["Figures", "Delay before and after", "Slices"]
    assert {"309", "70.0", "as it is, no-limit"} <= cells(root)
    titles = [one.text for one in root.iter("title")]
    assert {"as it is: shop/app", "as it is, no-limit: shop/app"} <= set(titles)
    assert any("shop/app is throttled on CPU 0 from 20.000 to 100.000 ms" in (one or "") for one in titles)


def test_pictures_stay_readable_in_a_narrow_window():
    """They are scrolled, as tables are, and not drawn smaller than their letters allow."""
    assert ".wide{overflow-x:auto" in html_page.page("x", "y", [], "z")
    assert "min-width:640px" in html_page.page("x", "y", [], "z")


def test_a_simulation_without_requests_has_no_delays():
    result = run("simulate", EXAMPLE.with_name("weights.yaml"), "--seconds", 1, "-o", "html")
    assert headings(parsed(result.stdout)) == ["Figures", "Slices"]


@pytest.fixture
def watch(tmp_path, monkeypatch):
    """Run watch on a container that is throttled in every second round."""
    tree = Kubepods(tmp_path / "root")
    path = tree.add("u1", "a" * 64, name="app")
    quiet(path)
    steps = [
        lambda i=i: counters(path, usage=400_000 * i, periods=20 * i, throttled=i // 2, us=800_000 * (i // 2))
        for i in range(1, 9)
    ]

    def watch(*args: object) -> Result:
        use_clock(monkeypatch, Clock(*steps))
        return run("watch", "--root", tree.root, "--data-dir", tmp_path, "-o", "html", *args)

    return watch


def test_watch_has_one_file_for_all_rounds(watch):
    root = parsed(watch("--count", 6).stdout)
    assert headings(root) == ["Containers, whole measurement", "Why", "Round by round"]
    assert "default/u1/app" in cells(root)
    hints = [one.text or "" for one in root.iter("title") if "throttled" in (one.text or "")]
    assert [hint.rpartition("throttled ")[2] for hint in hints] == ["0 ms/s", "400 ms/s"] * 3


def test_a_container_that_starts_late_stands_at_its_own_time():
    def one(name: str, throttled: float) -> dict:
        row = {"namespace": "", "pod": "", "container": name, "why": "", "notes": [], "remarks": []}
        return row | {"lostTo": None, "usedMsPerSecond": 1.0, "throttledMsPerSecond": throttled}

    seen = [{"a": 1.0}, {}, {"a": 0.0, "late": 7.0}]
    rounds = [
        {"at": "", "seconds": 2.0, "notes": [], "containers": [one(*each) for each in of.items()]}
        for of in seen
    ]
    root = parsed(limits_html.watched(rounds, ("CONTAINER",), [("a",)]))
    hints = [one.text for one in root.iter("title") if "throttled" in (one.text or "") and "s:" in one.text]
    assert "4 s: used 1, throttled 7 ms/s" in hints
    assert "0 s: used 1, throttled 1 ms/s" in hints
    assert "4 s: used 1, throttled 0 ms/s" in hints


def test_watch_once_has_no_rounds_to_compare(watch):
    assert "Round by round" not in headings(parsed(watch("--once").stdout))


def test_watch_without_an_end_cannot_be_one_file(watch):
    result = watch()
    assert result.exit_code == 2
    assert "--count" in result.stderr


def record(path: Path, name: str, **more: object) -> Path:
    one = {
        "namespace": "shop",
        "pod": name,
        "container": name,
        "cpuLimitMillis": 200,
        "usedMsPerSecond": 200.0,
        "throttledMsPerSecond": 3800.0,
        "periods": 300,
        "throttledPeriods": 300,
        **more,
    }
    path.write_text(json.dumps({"seconds": 30.0, "containers": [one]}))
    return path


def test_advice_has_options_with_ranges_and_commands_and_escapes_names(tmp_path):
    result = run("advise", record(tmp_path / "r.json", HOSTILE), "-o", "html")
    assert result.exit_code == 0, result.output
    root = parsed(result.stdout)
    assert any("drop the CPU limit" in cell for cell in cells(root))
    assert any("now and after" in (one.text or "") for one in root.iter("title"))
    assert any("\\x1b[31m\\x00\\u202e<img onerror=x>" in cell for cell in cells(root))


def test_a_starved_container_has_a_picture_of_what_a_request_gives(tmp_path):
    lost = {"neighboursMsPerSecond": 90.0, "pausedShare": 0.3}
    rival = {"group": HOSTILE, "weight": 922, "relativeWeight": 9.0, "usedMsPerSecond": 900.0}
    levels = [{"group": "/k/poda1/app", "weight": 102, "activeWeight": 922}]
    rivals = {"weight": 102, "levels": levels, "usedMsPerSecond": 900.0, "competitors": [rival]}
    path = record(
        tmp_path / "r.json",
        "web",
        cpuLimitMillis=None,
        usedMsPerSecond=100.0,
        throttledMsPerSecond=0.0,
        throttledPeriods=0,
        cpus=1,
        lostTo=lost,
        competition=rivals,
    )
    path.write_text(json.dumps(json.loads(path.read_text()) | {"cgroupVersion": 1}))
    result = run("advise", path, "-o", "html")
    assert result.exit_code == 0, result.output
    root = parsed(result.stdout)
    titles = [one.text or "" for one in root.iter("title")]
    assert "uses now: 100" in titles
    assert "needs: 100 to 150" in titles
    assert any(title.startswith("with a request of 160m: 15") for title in titles)
    assert any("900 now, 8" in title for title in titles)
    assert "Waits of all threads by cause" in titles


def test_refused_advice_is_named_with_its_reason(tmp_path):
    result = run("advise", record(tmp_path / "r.json", "web", usedMsPerSecond=None), "-o", "html")
    assert result.exit_code == 3
    assert "Without a change" in headings(parsed(result.stdout))


def test_hostile_texts_stay_texts_in_every_part_of_a_page():
    drawn = [
        charts.delays([DelayCurve(HOSTILE, [(0, 0.0), (99.9, 1e6)])]),
        charts.ranges(HOSTILE, 0.0, [RangeBar(HOSTILE, None, None), RangeBar("x", 0.0, 1e-9)], HOSTILE),
        charts.rounds(HOSTILE, [RoundSample(0.0, None, None)]),
        charts.losses([LossBar(HOSTILE, {"limit": 1e9}), LossBar("x", {"neighbours": 1e-9})]),
        charts.request(HOSTILE, [UseBar(HOSTILE, 0.0, "c-bad", 0.0)], [GivesWay(HOSTILE, 1e6, 0.0)]),
    ]
    parts = [
        html_page.table((HOSTILE,), [(HOSTILE,)]),
        html_page.items([HOSTILE]),
        html_page.element("p", HOSTILE),
        *map(html_page.picture, drawn),
    ]
    page = html_page.page(HOSTILE, HOSTILE, parts, HOSTILE)
    root = ElementTree.fromstring(page)
    assert {each.tag for each in root.iter()} <= ALLOWED


@pytest.mark.parametrize("values", [(0.0, 0.0), (1.0, 1.0), (1e-3, 2e-3), (5.0, 6000.0), (1e-6, 1e9)])
def test_curves_stay_inside_of_their_axes(values):
    picture = charts.delays([DelayCurve("x", list(zip((0, 99.9), values, strict=True)))])
    (line,) = re.findall(r'<path d="M([^"]+)" fill="none"', picture)
    points = [tuple(map(float, point.split())) for point in line.split("L")]
    assert all(76 <= x <= 976 and 16 <= y <= 276 for x, y in points)
