"""Tables show the text of strangers without obeying it."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from corelane.cpuset import CPUSet
from corelane.node.explain.cluster_status import ClusterStatus, ContainerLine, PendingLine
from corelane.view import status, tables


@pytest.mark.parametrize("plain", ["", "vm", "Ünï 日本", "CPUs 1-3: whole cores", "one\ntwo"])
def test_what_can_be_printed_stays_as_it_is(plain: str) -> None:
    assert tables.printable(plain) == plain


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2Jgone", "\\x1b[2Jgone"),
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("a\rb", "a\\rb"),
        ("\x9b31m", "\\x9b31m"),
        ("\u202edesrever", "\\u202edesrever"),
    ],
)
def test_what_moves_or_colours_a_terminal_is_shown_escaped(text: str, shown: str) -> None:
    assert tables.printable(text) == shown


def test_no_terminal_sequence_or_markup_of_a_pod_reaches_the_terminal() -> None:
    evil = "\x1b[31m[bold]x[/bold]"
    lines = (
        ContainerLine(
            "default", "p", "c", "n", False, "Burstable", "", "", False, CPUSet((0,)), "applied", evil
        ),
    )
    text = shown(ClusterStatus((), lines, (PendingLine("default", "q", evil),)))
    assert "\x1b[31m" not in text
    assert text.count("\\x1b[31m[bold]x[/bold]") == 2


def test_pods_outside_the_default_namespace_are_shown_with_theirs() -> None:
    lines = tuple(
        ContainerLine(space, "p", "c", "n", False, "Burstable", "", "", False, CPUSet((0,)), "applied", "")
        for space in ("default", "team-a")
    )
    text = shown(ClusterStatus((), lines, (PendingLine("team-b", "q", "no room"),)))
    assert " p/c " in text
    assert " team-a/p/c " in text
    assert " team-b/q " in text


def shown(everything: ClusterStatus) -> str:
    console = Console(file=io.StringIO(), width=200, force_terminal=True, highlight=False)
    status.show(everything, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()
