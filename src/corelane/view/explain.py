"""The reasons of a pod's node and CPUs, or of its being pending: the verdict first, then the steps."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from corelane.node.explain.pod_decision import (
    NodeGroup,
    PodDecision,
    ScoreTerm,
    Source,
    Verdict,
)
from corelane.view import tables
from corelane.view.allocate import show_objective

if TYPE_CHECKING:
    from rich.console import Console

_NAMES: Final = 16
"""Node names of one row at most."""
_COLUMN_GAP: Final = 3
WIDTH: Final = 110
"""Columns to which sentences are wrapped at most."""
_VERDICTS: Final = {
    Verdict.BOUND: "on node {node}",
    Verdict.BINDING: "being bound to node {node}",
    Verdict.UNSCHEDULABLE: "pending, fits on none of {nodes} {noun}",
    Verdict.NOT_TRIED: "pending, not tried yet: {message}",
    Verdict.ENDED: "ended: {message}",
}
_TERMINATING: Final = 8
"""Terminating pods that are named."""


def show(pod: PodDecision, to: Console) -> None:
    """Print the verdict, the CPUs, each node's verdict by reason, the scores, and what would help."""
    _say(f"pod {pod.namespace}/{pod.name}: {_verdict(pod)}", to, style="bold")
    _say(_whence(pod), to)
    to.print()
    _show_containers(pod, to)
    _show_nearest(pod, to)
    _show_groups(pod, to)
    _show_scores(pod, to)
    if pod.objective:
        show_objective(pod.objective, to)
    if pod.course:
        rows = [(event.time[11:19], event.text) for event in pod.course]
        tables.pairs("What happened (UTC)", rows, to)
    for note in pod.notes:
        _say(f"note: {note}", to)


def _say(text: str, to: Console, style: str = "") -> None:
    lines = tables.filled(tables.printable(text), min(to.width, WIDTH))
    to.print("\n".join(lines), markup=False, style=style or None)


def _verdict(pod: PodDecision) -> str:
    if pod.verdict is Verdict.ENDED and pod.source is Source.RECORDED:
        before = _verdict(replace(pod, verdict=Verdict.UNSCHEDULABLE)) if not pod.node else ""
        return f"deleted; before: {before}" if before else f"ended or deleted; its node was {pod.node}"
    if pod.nominated:
        return f"pending, nominated for node {pod.nominated}: waits until {_awaited(pod)}"
    if pod.verdict is Verdict.UNSCHEDULABLE and pod.node:
        return f"pending; it fits now, node {pod.node} would be chosen"
    if pod.verdict is Verdict.UNSCHEDULABLE and pod.groups and not pod.groups[0].count:
        return f"pending: {pod.groups[0].message}"
    if pod.verdict is Verdict.UNSCHEDULABLE and not pod.nodes:
        return "pending: the cluster has no nodes"
    return _VERDICTS[pod.verdict].format(
        node=pod.node,
        nodes=pod.nodes,
        noun="node" if pod.nodes == 1 else "nodes",
        message=pod.message,
    )


def _awaited(pod: PodDecision) -> str:
    """Say what must end on the nominated node."""
    named, more = pod.terminating[:_TERMINATING], len(pod.terminating[_TERMINATING:])
    if not named:
        return "that node has released the resources of evicted pods"
    verb = "have" if len(named) > 1 else "has"
    return f"{', '.join(named)}{f' and {more} more pods' if more else ''} {verb} terminated"


def _whence(pod: PodDecision) -> str:
    """Say whether this is the decision as it was taken, or one taken again."""
    day, time = pod.time[:10], pod.time[11:19]
    if pod.source is Source.RECOMPUTED:
        return f"recomputed on today's state ({day} {time} UTC): not the scheduler's own record"
    attempt = f", attempt {pod.attempt}" if pod.attempt else ""
    ledger = f", on generation {pod.generation} of the node's ledger" if pod.kind == "ledger" else ""
    return f"decision of {time} (UTC, {day}) by {pod.scheduler}{attempt}{ledger}"


def _show_containers(pod: PodDecision, to: Console) -> None:
    if not pod.containers:
        return
    headings = ("CONTAINER", "PROPOSED", "ON THE NODE", "RUNS ON")
    rows = [
        (each.name, str(each.proposed), "" if each.actual is None else str(each.actual), each.where)
        for each in pod.containers
    ]
    used = [i for i in range(len(headings)) if any(row[i] for row in rows)]
    shown = [[row[i] or "-" for i in used] for row in rows]
    tables.show("CPUs", [headings[i] for i in used], shown, to)
    if whys := [(container.name, container.why) for container in pod.containers if container.why]:
        tables.pairs("Why these CPUs", whys, to)
    for container in pod.containers:
        proposed, actual = container.proposed, container.actual
        if proposed and actual is not None and actual != proposed:
            _say(
                f"container {container.name}: CPUs {proposed} were proposed by the scheduler, and the node "
                f"allocated {actual}: the proposed ones were no longer free there",
                to,
            )


def _show_groups(pod: PodDecision, to: Console) -> None:
    if not pod.groups or not pod.groups[0].count:
        return
    merged: dict[str, NodeGroup] = {}
    for group in pod.groups:
        if before := merged.get(group.message):
            nodes = (*before.nodes, *group.nodes)[:_NAMES]
            group = replace(before, count=before.count + group.count, nodes=nodes)
        merged[group.message] = group
    groups = sorted(merged.values(), key=lambda group: -group.count)
    rows = []
    for group in groups:
        names, more = ", ".join(group.nodes), group.count - len(group.nodes)
        rows.append(
            (str(group.count), group.message, f"{names} and {more} more" if names and more else names or "-")
        )
    title = f"Nodes: {pod.nodes} considered, {pod.feasible} fit"
    tables.show(title, ("NODES", "REJECTED BECAUSE", "NAMES"), rows, to)


def _show_scores(pod: PodDecision, to: Console) -> None:
    """Print each term of the chosen node's score beside those of the next best."""
    if not pod.terms:
        if pod.node and pod.feasible == 1:
            _say(f"node {pod.node} is the only one that fits: no scores were compared", to)
            to.print()
        return
    rows = [_score_row(term) for term in pod.terms]
    rows.append(("total, weighted", "", *map(_number, pod.totals)))
    scale = "0 to 100; indented: values behind a score" if any(map(_is_detail, pod.terms)) else "0 to 100"
    title = f"Scores ({scale}) of the best of {pod.feasible} nodes"
    chosen, *others = pod.candidates
    names = [f"{chosen} (chosen)", *others]
    widths = max(len(row[0]) for row in rows), len("WEIGHT"), *map(len, names)
    if sum(widths) + _COLUMN_GAP * len(widths) > to.width:  # Numbers instead of long node names.
        names = ["1 (chosen)", *map(str, range(2, len(names) + 1))]
        tables.pairs(title, list(zip(names, pod.candidates, strict=True)), to)
        title = ""
    tables.show(title, ("TERM", "WEIGHT", *names), rows, to)
    if len(pod.totals) > 1:
        gains = [(term.weight * (term.values[0] - term.values[1]), term.plugin) for term in pod.terms]
        gain, plugin = max(gains)
        line = f"largest difference: {plugin}, {_number(gain)} more than on {pod.candidates[1]}"
        if pod.totals[0] == pod.totals[1]:
            line = "equal scores: the node with fewer pods is chosen, then the one whose name comes first"
        _say(line, to)
        to.print()


def _score_row(term: ScoreTerm) -> tuple[str, ...]:
    """A score, or a value that one is made of, under the score's own row: it has no weight."""
    _, _, name = term.plugin.partition(".")
    if not _is_detail(term):
        return (term.plugin, f"{term.weight:g}", *map(_number, term.values))
    return (f"  {name}", "", *("-" if value < 0 else _number(value) for value in term.values))


def _is_detail(term: ScoreTerm) -> bool:
    """Whether it is a value that a score is made of, in a unit of its own: it has no weight."""
    return "." in term.plugin and not term.weight


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _show_nearest(pod: PodDecision, to: Console) -> None:
    if pod.nearest is None:
        return
    changes = [f"{change.text}, or" for change in pod.nearest.changes[:-1]]
    changes += [change.text for change in pod.nearest.changes[-1:]]
    rows = [("" if number else "would fit after", text) for number, text in enumerate(changes)]
    lacks = [
        ("rejected because", "; ".join(pod.nearest.missing)),
        *(("", amount) for amount in pod.nearest.amounts),
    ]
    tables.pairs(f"Nearest node: {pod.nearest.name}", [*lacks, *rows], to)
