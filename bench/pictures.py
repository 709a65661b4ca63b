"""The pictures of README and docs, drawn by commands whose input is in the repository: `make pictures`."""

import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
IMAGES: Final = ROOT / "docs" / "images"
COMMANDS: Final = {
    "node.svg": (
        "allocate -f examples/latency-critical.yaml -f examples/numa.yaml --policy pools -o svg --machine",
        "socket:2 numa:1 core:8 smt:2",
    ),
    "machine.svg": ("topology -o svg --machine", "socket:2 numa:2 core:8 smt:2"),
    "limits-pytorch.svg": ("limits simulate pytorch -o svg",),
}


def draw(name: str) -> str:
    """Return a picture."""
    options, *machine = COMMANDS[name]
    command = [sys.executable, "-m", "corelane", *options.split(), *machine]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    for each in COMMANDS:
        (IMAGES / each).write_text(draw(each))
