"""The kubelet's state file for people and scripts: content, the rules of the kubelet's start, repair."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from corelane.cpuset import CPUSet
from corelane.node.kubelet.checkpoint import Checkpoint
from corelane.view import tables

if TYPE_CHECKING:
    from rich.console import Console

__all__ = [
    "Change",
    "Contents",
    "Difference",
    "Rule",
    "Verdict",
    "checksum",
    "plain_contents",
    "plain_difference",
    "plain_rules",
    "show_contents",
    "show_difference",
    "show_rules",
]

Verdict: TypeAlias = Literal["ok", "warning", "fails"]


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of the kubelet's start: `text` is upstream's where it fails, `remedy` says what to do."""

    name: str
    verdict: Verdict
    text: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Contents:
    """A state file; `fault` is "" when its checksum is right."""

    file: str
    checkpoint: Checkpoint
    checksum: int | None
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Change:
    """What a repair does to one container's CPUs; None stands for no entry."""

    uid: str
    container: str
    pod: str
    """`namespace/name` where it is known."""
    before: CPUSet | None
    after: CPUSet | None
    why: str

    @property
    def kind(self) -> str:
        if self.before is None and self.after is None:
            return "left out"
        if self.before == self.after:
            return "kept"
        if self.before is None:
            return "added"
        return "removed" if self.after is None else "changed"


@dataclass(frozen=True, slots=True)
class Difference:
    """A repair: the file as it is (None: missing or unreadable) and as it will be."""

    file: str
    before: Checkpoint | None
    after: Checkpoint
    version: int
    """The version that is written."""
    changes: tuple[Change, ...]
    notes: tuple[str, ...] = ()
    needed: bool = True
    """False where the file is already what a repair would write."""


def plain_contents(contents: Contents) -> dict[str, Any]:
    """JSON with stable keys; CPU sets are list strings."""
    return {
        "file": contents.file,
        "kind": "cpu_manager_state",
        **_plain_checkpoint(contents.checkpoint),
        "checksum": contents.checksum,
        "checksumOk": not contents.fault,
        "fault": contents.fault,
    }


def _plain_checkpoint(found: Checkpoint) -> dict[str, Any]:
    return {
        "version": found.version,
        "policy": found.policy,
        "defaultCpuSet": str(found.default),
        "entries": [
            {"podUID": uid, "container": name, "cpus": str(cpus), "count": len(cpus)}
            for uid, name, cpus in _entries(found)
        ],
        "podEntries": [
            {"podUID": uid, "cpus": str(cpus), "count": len(cpus)} for uid, cpus in sorted(found.pods.items())
        ],
    }


def _entries(found: Checkpoint) -> Iterator[tuple[str, str, CPUSet]]:
    for uid, containers in sorted(found.entries.items()):
        for name, cpus in sorted(containers.items()):
            yield uid, name, cpus


def show_contents(contents: Contents, to: Console) -> None:
    """The facts of the file, then a row for each entry."""
    found = contents.checkpoint
    facts = [
        ("policy", found.policy or "(none named)"),
        ("version", str(found.version)),
        ("checksum", checksum(contents.checksum, contents.fault)),
        ("default CPU set", _set(found.default)),
    ]
    tables.show(contents.file, ("field", "value"), facts, to)
    rows = [(uid or "-", name, str(cpus), str(len(cpus))) for uid, name, cpus in _entries(found)]
    rows += [(uid, "(whole pod)", str(cpus), str(len(cpus))) for uid, cpus in sorted(found.pods.items())]
    if rows:
        tables.show("Exclusive CPUs", ("pod UID", "container", "CPUs", "count"), rows, to)
    else:
        to.print("No container has exclusive CPUs.")


def checksum(found: int | None, fault: str) -> str:
    """What there is to say of a file's checksum."""
    if fault and found is None:
        return "is no number"
    if fault:
        return f"{found} DIFFERS from the content"
    return f"{found} is right" if found else "absent, which the kubelet accepts"


def _set(cpus: CPUSet) -> str:
    return f"{cpus} ({len(cpus)})" if cpus else "(empty)"


def plain_rules(file: str, rules: list[Rule], settings: Mapping[str, Any]) -> dict[str, Any]:
    """JSON with stable keys."""
    starts = all(rule.verdict != "fails" for rule in rules)
    return {"file": file, "starts": starts, **settings, "rules": [asdict(rule) for rule in rules]}


def show_rules(file: str, rules: list[Rule], to: Console) -> None:
    """A row for each rule, and a last line with the verdict."""
    rows = [(rule.verdict, rule.name, _told(rule)) for rule in rules]
    tables.show(file, ("", "rule", "what the kubelet finds"), rows, to)
    failing = [rule for rule in rules if rule.verdict == "fails"]
    to.print(f"The kubelet would {'not start' if failing else 'start'} with this file.", markup=False)


def _told(rule: Rule) -> str:
    return f"{rule.text}\n→ {rule.remedy}" if rule.remedy else rule.text


def plain_difference(difference: Difference, *, written: bool, backup: str | None) -> dict[str, Any]:
    """JSON with stable keys; `before` is null where there was no readable file."""
    after = {**_plain_checkpoint(difference.after), "version": difference.version}
    return {
        "file": difference.file,
        "needed": difference.needed,
        "written": written,
        "backup": backup,
        "before": _plain_checkpoint(difference.before) if difference.before else None,
        "after": after,
        "changes": [_plain_change(change) for change in difference.changes],
        "notes": list(difference.notes),
    }


def _plain_change(change: Change) -> dict[str, Any]:
    return {
        "kind": change.kind,
        "podUID": change.uid,
        "pod": change.pod,
        "container": change.container,
        "before": None if change.before is None else str(change.before),
        "after": None if change.after is None else str(change.after),
        "why": change.why,
    }


def show_difference(difference: Difference, to: Console) -> None:
    """The fields before and after, a row for each container, and what else has to be said."""
    before, after = difference.before, difference.after
    rows = [
        ("policy", before.policy if before else "-", after.policy),
        ("version", str(before.version) if before else "-", str(difference.version)),
        ("default CPU set", _set(before.default) if before else "-", _set(after.default)),
    ]
    tables.show(difference.file, ("field", "in the file", "repaired"), rows, to)
    if difference.changes:
        headings = ("", "pod", "container", "in the file", "repaired", "why")
        tables.show("Containers", headings, map(_row, difference.changes), to)
    for note in difference.notes:
        to.print(f"note: {note}", markup=False)


def _row(change: Change) -> tuple[str, ...]:
    before, after = ("-" if cpus is None else str(cpus) for cpus in (change.before, change.after))
    return change.kind, change.pod or change.uid, change.container, before, after, change.why
