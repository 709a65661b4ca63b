"""Ctrl-C before a command has begun its work: one line at most, status 130, nothing left behind."""

import subprocess
import sys
from pathlib import Path

import pytest

AT_IMPORT = """
import os, signal, sys
from importlib.abc import MetaPathFinder

class Interrupt(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == {module!r}:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupt())
from corelane.__main__ import main
main()
"""


@pytest.mark.parametrize(
    "module",
    [
        "click",
        "corelane.cli._streams",
        "corelane.cli.up",
        "corelane.embedded.up.command",
        "corelane.embedded.up.cluster",
    ],
)
def test_an_interrupt_while_up_is_imported_ends_it_silently_and_leaves_nothing(
    module: str, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    command = [sys.executable, "-c", AT_IMPORT.format(module=module), "up", "--data-dir", str(data)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
    assert not data.exists()
