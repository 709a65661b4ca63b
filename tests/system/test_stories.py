"""The page of the stories, word for word: a shell runs its commands, and they must print what it shows."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from support import kubectl as program
from support import stories
from support.up import Up, up

pytestmark = pytest.mark.system

PAGE = stories.DIRECTORY / "README.md"
GAP = "[…]"


@dataclass(frozen=True)
class Command:
    """A line after a prompt, and the lines that follow it."""

    text: str
    shown: tuple[str, ...]


def sections() -> Iterator[tuple[str, list[Command]]]:
    """Each heading with the commands below it."""
    for section in PAGE.read_text().split("\n## ")[1:]:
        blocks = re.findall(r"```console\n(.*?)```", section, re.DOTALL)
        yield section.partition("\n")[0], [one for block in blocks for one in commands(block)]


def commands(block: str) -> Iterator[Command]:
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        text, _, shown = part.partition("\n")
        yield Command(text, tuple(line for line in shown.splitlines() if line.strip()))


def plain(line: str) -> str:
    """Without what is never twice the same: ages, and how wide a column is."""
    return re.sub(r"^(\d+[smh])+ |^Ns ", "", " ".join(line.split()))


LEDGER_SECONDS = 1.0
"""After a deletion, until the scheduler has the node's new ledger; a reader types no faster."""


class Session:
    """A reader at a shell; clusters are in a directory of the test's own."""

    def __init__(self, directory: Path, kubectl: Path, stack: ExitStack) -> None:
        self.directory, self._stack = directory, stack
        programs = directory / "bin"
        programs.mkdir()
        (programs / "kubectl").symlink_to(kubectl)
        (programs / "corelane").write_text(f'#!/bin/sh\nexec {sys.executable} -m corelane "$@"\n')
        (programs / "corelane").chmod(0o755)
        path = f"{programs}{os.pathsep}{os.environ.get('PATH', '')}"
        self.environment = dict(os.environ) | {"PATH": path, "HOME": str(directory), "COLUMNS": "500"}
        self.cluster: Up | None = None

    def run(self, command: Command) -> None:
        words = shlex.split(command.text.replace("/tmp/", f"{self.directory}/"))
        if words[:2] == ["corelane", "up"]:
            self._start([word for word in words[2:] if word != "--detach"])
        elif words[0] == "export":
            name, _, value = words[1].partition("=")
            self.environment[name] = value
        elif words[:2] == ["corelane", "down"]:
            assert self.cluster is not None
            self.cluster.stop()
        else:
            self._check(command)
        if words[:2] == ["kubectl", "delete"]:
            time.sleep(LEDGER_SECONDS)

    def _start(self, arguments: list[str]) -> None:
        data = Path(arguments[arguments.index("--data-dir") + 1])
        rest = [one for one in arguments if one not in ("--data-dir", str(data))]
        self.cluster = self._stack.enter_context(up(data, *rest, "--node-name", "here"))

    def _check(self, command: Command) -> None:
        done = subprocess.run(
            ["bash", "-c", f"set -o pipefail; {command.text}"],
            env=self.environment,
            cwd=stories.DIRECTORY.parents[1],
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        told = f"$ {command.text}\n{done.stdout}{done.stderr}"
        assert done.returncode == 0, told
        printed = iter([plain(line) for line in done.stdout.splitlines()])
        for line in command.shown:
            assert line == GAP or plain(line) in printed, f"no line {line!r}, or not in this order:\n{told}"


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    found = program.find()
    if found is None:
        pytest.skip(program.MISSING)
    with ExitStack() as stack:
        yield Session(tmp_path_factory.mktemp("reader"), found[0], stack)


def test_the_page_has_every_story() -> None:
    """Without a cluster: what is not on the page is not tested below."""
    applied = {word for _, found in sections() for one in found for word in one.text.split()}
    assert {f"examples/stories/{name}.yaml" for name in stories.names()} <= applied
    assert sum(len(one.shown) for _, found in sections() for one in found) > 50


@pytest.mark.parametrize("heading", [heading for heading, _ in sections()])
def test_what_the_page_shows_is_what_a_reader_sees(session: Session, heading: str) -> None:
    for command in dict(sections())[heading]:
        session.run(command)
