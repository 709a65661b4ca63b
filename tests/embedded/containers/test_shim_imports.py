"""What the shim of a container does not load: each container pays for it."""

import subprocess
import sys
from pathlib import Path

import pytest

from corelane.embedded.containers import shim

PROBE = "import sys; sys.path.append(sys.argv[1]); import shim.supervise; print(*sys.modules)"


@pytest.fixture(scope="module")
def loaded() -> list[str]:
    room = str(Path(shim.__file__).parent.parent)
    command = [sys.executable, "-I", "-S", "-c", PROBE, room]
    run = subprocess.run(command, capture_output=True, text=True, check=True, timeout=180)
    return run.stdout.split()


@pytest.mark.parametrize("name", ["enum", "signal", "pathlib", "subprocess", "re", "typing", "corelane"])
def test_a_shim_does_not_load(loaded: list[str], name: str) -> None:
    assert "shim.supervise" in loaded
    assert name not in loaded
