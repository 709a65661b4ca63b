"""The state file's views: tables for people, JSON for scripts."""

import io
import json

from corelane.cpuset import CPUSet
from corelane.node.kubelet.checkpoint import Checkpoint
from corelane.node.kubelet.validation import StartRule
from corelane.node.recovery.rebuilding import EntryChange, StateDifference, StateFile
from corelane.reasons import Code, Reason, sentence
from corelane.view import state, tables

FOUND = Checkpoint(
    "static", CPUSet.parse("0-1"), {"u1": {"[red]app": CPUSet.parse("2-3")}}, {"u1": CPUSet([2])}
)


def contents(checkpoint, checksum, fault=""):
    return StateFile("FILE", b"", checkpoint, checksum, fault)


def text(show, *args):
    out = io.StringIO()
    show(*args, tables.console(out))
    return out.getvalue()


def test_contents_are_printed_verbatim_including_markup_in_names():
    shown = text(state.show_contents, contents(FOUND, 7))
    for word in ("FILE", "static", "7 (right)", "[red]app", "2-3", "(whole pod)"):
        assert word in shown


def test_a_wrong_or_absent_checksum_is_shown():
    assert "7 (wrong" in text(state.show_contents, contents(FOUND, 7, "broken"))
    assert "none (the kubelet accepts this)" in text(state.show_contents, contents(FOUND, None))
    assert state.plain_contents(contents(FOUND, 7, "broken"))["checksumOk"] is False


def test_a_state_without_entries_is_stated():
    assert "No container has exclusive CPUs" in text(state.show_contents, contents(Checkpoint("none"), 1))


def test_a_failing_rule_shows_its_remedy():
    rules = [
        StartRule("policy", "ok", "fine"),
        StartRule("total", "fails", "the text", Reason(Code.REMEDY_REPAIR)),
    ]
    shown = text(state.show_rules, "FILE", rules)
    assert "→ run `corelane state repair`" in shown
    assert "would not start" in shown
    assert "would start" in text(state.show_rules, "FILE", rules[:1])
    plain = state.plain_rules("FILE", rules, {"cpus": "0-7"})
    assert plain["starts"] is False
    assert plain["rules"][1] == {
        "name": "total",
        "verdict": "fails",
        "text": "the text",
        "remedy": sentence(Reason(Code.REMEDY_REPAIR)),
    }


def test_a_difference_distinguishes_kept_changed_added_and_removed():
    two, three = CPUSet([2]), CPUSet([3])
    pairs = [(two, two), (two, three), (None, two), (two, None), (None, None)]
    changes = tuple(
        EntryChange("u", "", f"c{i}", before, after, (Reason(Code.ENTRY_UNCHANGED),))
        for i, (before, after) in enumerate(pairs)
    )
    assert [change.kind for change in changes] == ["kept", "changed", "added", "removed", "left out"]
    difference = StateDifference("FILE", None, FOUND, 4, changes, ("a note",))
    shown = text(state.show_difference, difference)
    assert "note: a note" in shown
    plain = state.plain_difference(difference, written=False, backup=None)
    assert plain["before"] is None
    assert plain["after"]["version"] == 4
    assert plain["changes"][3]["after"] is None
    json.dumps(plain)
