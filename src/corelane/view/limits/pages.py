"""The limits commands' results as one HTML file each, to attach to a ticket: `-o html`."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import corelane
from corelane.view import html_page
from corelane.view.html_page import element, items, picture, table
from corelane.view.limits import charts
from corelane.view.limits.charts import CAUSES, DelayCurve, GivesWay, LossBar, RangeBar, RoundSample, UseBar
from corelane.view.limits.simulation import HEADINGS, Panel, StudyColumn, rows, timeline_svg

_MS: Final = 1e6
_CHARTS: Final = 12
"""At most so many containers with a chart of their own."""
_BARS: Final = 40
_CAUSES: Final = "HELD BACK"
"""Beginning of the heading of a column of words."""
_NONE: Final = "-"


def simulation(
    title: str, columns: Sequence[StudyColumn], panels: Sequence[Panel], notes: Sequence[str]
) -> str:
    """Cases side by side: their table, delays by percentile, and slices."""
    parts = [element("h2", "Figures"), table(HEADINGS, rows(columns), texts=2)]
    curves = [
        DelayCurve(f"{column.label}: {path}", [(percent, duration / _MS) for percent, duration in delays])
        for column in columns
        for path, delays in column.outcomes[0].delays.items()
    ]
    if curves:
        parts += [element("h2", "Delay before and after" if len(columns) > 1 else "Delay")]
        parts += [picture(charts.delays(curves))]
    if panels:
        parts += [element("h2", "Slices"), picture(timeline_svg("What ran when", panels))]
    parts += [element("h2", "Notes"), items(notes)] if any(notes) else []
    seeds = ", ".join(dict.fromkeys(str(outcome.seed) for column in columns for outcome in column.outcomes))
    seconds = columns[0].outcomes[0].scenario.seconds
    return _page(title, f"corelane limits simulate: {seconds:g} s simulated, seed {seeds}", parts)


def watched(
    rounds: Sequence[Mapping[str, Any]],
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    whole: Mapping[str, Any] | None = None,
) -> str:
    """Rounds as `limits watch -o json` has them; the table's rows are of the `whole`, else of the last."""
    last = whole or rounds[-1]
    which = ", whole measurement" if whole else ", last round"
    whys = [(_name(each), why) for each in last["containers"] if (why := _why(each))]
    parts = [
        element("h2", f"Containers{which}" if len(rounds) > 1 else "Containers"),
        table(headings, rows, also=[i for i, each in enumerate(headings) if each.startswith(_CAUSES)]),
    ]
    if divided := [each for each in last["containers"] if each["lostTo"]]:
        parts += _held_back([(_name(each), each) for each in divided])
    if whys:
        parts += [element("h2", "Why"), table(("CONTAINER", "WHY"), whys, texts=2)]
    if len(rounds) > 1 and (pictures := list(_rounds(rounds))):
        parts += [element("h2", "Round by round"), *pictures]
    notes = dict.fromkeys(note for each in rounds for note in each["notes"])
    parts += [element("h2", "Notes"), items(notes)] if notes else []
    total = sum(each["seconds"] for each in rounds)
    subtitle = f"corelane limits watch: {total:.3g} s until {rounds[-1]['at']}, rounds: {len(rounds)}"
    return _page("CPU time lost to throttling", subtitle, parts)


_LOST_TO: Final = ("CONTAINER", "LOST ms/s", *(name.upper() for name in CAUSES.values()))


def _held_back(rows: Sequence[tuple[str, Mapping[str, Any]]]) -> Iterator[str]:
    """Draw what containers lost, by cause: the table, and a picture of those that lost something."""
    yield element("h2", "What held it back")
    cells = []
    for name, row in rows:
        lost, total = row["lostTo"], row["lostTo"]["totalMsPerSecond"]
        amounts = [lost[f"{key}MsPerSecond"] for key in CAUSES]
        parts = [f"{amount:.0f} ({amount / total:.0%})" if total else "0" for amount in amounts]
        cells.append((name, f"{total:.0f}", *parts))
    yield table(_LOST_TO, cells)
    bars = [LossBar(name, {key: row["lostTo"][f"{key}MsPerSecond"] for key in CAUSES}) for name, row in rows]
    if charted := sorted((each for each in bars if each.total >= 1), key=lambda each: -each.total):
        yield picture(charts.losses(charted[:_BARS]))
    if len(charted) > _BARS:
        yield element("p", f"{len(charted) - _BARS} more containers are in the table only.")


def _name(row: Mapping[str, Any]) -> str:
    container = row["container"] or "(the pod)"
    return "/".join(filter(None, (row.get("namespace"), row.get("pod"), container)))


def _why(row: Mapping[str, Any]) -> str:
    return "; ".join(filter(None, [row["why"], *row["notes"], *row["remarks"]]))


def _rounds(rounds: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Containers in the order of the last round's table, throttled ones first of all."""
    samples: dict[str, list[RoundSample]] = {_name(row): [] for row in rounds[-1]["containers"]}
    for number, each in enumerate(rounds):
        for row in each["containers"]:
            sample = RoundSample(each["seconds"], row["usedMsPerSecond"], row["throttledMsPerSecond"])
            missed = [RoundSample(before["seconds"], None, None) for before in rounds[:number]]
            of = samples.setdefault(_name(row), [])
            of += [*missed[len(of) :], sample]
    charted = [name for name, of in samples.items() if any(sample.throttled for sample in of)]
    for name in charted[:_CHARTS]:
        yield picture(charts.rounds(name, samples[name]))
    if len(charted) > _CHARTS:
        yield element("p", f"{len(charted) - _CHARTS} more throttled containers are in the table only.")


_ADVICE: Final = ("CONTAINER", "ADVICE", "LIMIT", "USED CPUs", "THROTTLED ms/s", "LOST", "COST")
_OPTIONS: Final = ("OPTION", "RISK", "THROTTLED ms/s", "USED CPUs", "STOP ms", "p99 ms")


def advice(tree: Mapping[str, Any]) -> str:
    """Draw what `limits advise -o json` has: all containers, then each with its options before and after."""
    advised = tree["advice"]
    parts = [element("h2", "Containers"), table(_ADVICE, [_advised(each) for each in advised], texts=2)]
    for each in advised:
        if each["options"]:
            parts += [element("h2", _subject(each)), element("p", each["why"]), *_options(each)]
    if divided := [each for each in advised if each["lostTo"]]:
        parts += _held_back([(_subject(each), each) for each in divided])
    rest = [f"{_subject(each)}: {each['answer']}: {each['why']}" for each in advised if not each["options"]]
    parts += [element("h2", "Without a change"), items(rest)] if rest else []
    parts += [element("h2", "Notes"), items(tree["notes"])] if tree["notes"] else []
    changes = sum(each["answer"] == "change" for each in advised)
    subtitle = f"corelane limits advise: containers: {len(advised)}, to change: {changes}"
    return _page("Advice on CPU limits", subtitle, parts)


def _subject(each: Mapping[str, Any]) -> str:
    where = "/".join(filter(None, (each["namespace"], each["name"], each["container"])))
    return f"{each['kind']} {where}" if each["kind"] else where


def _advised(each: Mapping[str, Any]) -> tuple[str, ...]:
    best = next((option["title"] for option in each["options"] if option["recommended"]), each["answer"])
    limit, used, lost = each["cpuLimitMillis"], each["usedMsPerSecond"], each["lostShare"]
    return (
        _subject(each),
        best,
        "none" if limit is None else f"{limit / 1000:g}",
        _NONE if used is None else f"{used / 1000:.2f}",
        _number(each["throttledMsPerSecond"]),
        _NONE if lost is None else f"{lost:.1%}",
        each["cost"] or _NONE,
    )


def _options(each: Mapping[str, Any]) -> Iterator[str]:
    options = each["options"]
    best = next((i for i, option in enumerate(options) if option["recommended"]), -1)
    yield table(_OPTIONS, [_option(option) for option in options], texts=2, best=best)
    if each["throttledMsPerSecond"]:
        bars = [_bar(option, option["effect"]["throttledMsPerSecond"]) for option in options]
        yield picture(
            charts.ranges("Throttled time, now and after", each["throttledMsPerSecond"], bars, "ms/s")
        )
    tails = [tail for option in options if (tail := option["effect"]["p99"])]
    if tails and tails[0]["nowMs"]:
        bars = [_bar(option, (option["effect"]["p99"] or {}).get("afterMs")) for option in options]
        yield picture(charts.ranges("p99 of the delay, now and after", tails[0]["nowMs"], bars, "ms"))
    if each["starvation"]:
        yield picture(_request(each["starvation"]))
    for option in options:
        yield element("h3", option["title"])
        deviation, risk = option["deviation"], option["risk"]
        effect = option["effect"]
        yield items(
            [
                f"deviation from the policy: {deviation}" if deviation else "",
                f"risk {risk['level']}: {risk['why']}",
                f"throttled time: {effect['noThrottled']}" if effect.get("noThrottled") else "",
                f"p99: {effect['noP99']}" if effect.get("noP99") else "",
                *option["consequences"],
                option["patchNote"] or "",
            ]
        )
        if shown := option["command"] or (json.dumps(option["patch"], indent=2) if option["patch"] else ""):
            yield element("pre", shown)
    yield items(each["remarks"])


def _request(starved: Mapping[str, Any]) -> str:
    """CPU time now and with the advised request, and with one from use."""
    need = starved["neededMillis"]
    bars = [
        UseBar("uses now", starved["usedMillis"], "c-bad"),
        UseBar("its weight entitles it to", starved["entitledMillis"], "c-soft"),
    ]
    if need["high"] is not None:
        bars.append(UseBar("needs", need["high"], "c-accent", need["low"]))
    if request := starved["requestMillis"]:
        bars.append(UseBar(f"with a request of {request}m", starved["getsMillis"], "c-good"))
    from_use = f"with {starved['fromUseMillis']}m, as VPA takes from use"
    bars.append(UseBar(from_use, starved["fromUseGetsMillis"], "c-soft"))
    others = [GivesWay(own["group"], own["usedMillis"], own["afterMillis"]) for own in starved["giveWay"]]
    return charts.request("CPU time of the container, now and with a larger request", bars, others[:_CHARTS])


def _option(option: Mapping[str, Any]) -> tuple[str, ...]:
    effect = option["effect"]
    tail = effect["p99"]
    return (
        option["title"],
        option["risk"]["level"],
        _range(effect["throttledMsPerSecond"]),
        _range(effect["usedMsPerSecond"], 1000, 2),
        _range(effect["stopMs"]),
        f"{_number(tail['nowMs'])} → {_range(tail['afterMs'])}" if tail else "unknown",
    )


def _bar(option: Mapping[str, Any], values: Mapping[str, Any] | None) -> RangeBar:
    low, high = (values["low"], values["high"]) if values else (None, None)
    return RangeBar(option["title"], low, high, option["recommended"])


def _range(values: Mapping[str, Any] | None, scale: float = 1.0, digits: int = 0) -> str:
    if not values or values["low"] is None or values["high"] is None:
        return "unknown"
    low, high = (f"{values[key] / scale:,.{digits}f}" for key in ("low", "high"))
    return low if low == high else f"{low} to {high}"


def _number(value: float | None) -> str:
    return _NONE if value is None else f"{value:,.1f}"


def _page(title: str, subtitle: str, parts: Sequence[str]) -> str:
    footer = f"corelane {corelane.__version__}. This file has no script and loads nothing."
    return html_page.page(title, subtitle, parts, footer)
