"""The pictures of README and docs, drawn by commands whose input is in the repository: `make pictures`."""

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from corelane.cpuset import CPUSet
from corelane.machine import sources
from corelane.view.cpumap import Owner
from corelane.view.svg import svg

ROOT: Final = Path(__file__).parents[1]
IMAGES: Final = ROOT / "docs" / "images"
NODE: Final = "socket:2 numa:1 core:8 smt:2"


def corelane(*arguments: str) -> str:
    """Return what a command prints."""
    command = [sys.executable, "-m", "corelane", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def node() -> str:
    """Draw a node with the pods of examples/numa.yaml, where `corelane allocate` places them."""
    asked = ("allocate", "-f", "examples/numa.yaml", "--policy", "pools", "--machine", NODE)
    pods = json.loads(corelane(*asked, "-o", "json"))["pods"]
    owners = dict.fromkeys(CPUSet.parse(pods[-1]["sharedPool"]), Owner("shared pool", "shared"))
    for pod in pods:
        for container in pod["containers"]:
            owner = Owner(f"{pod['pod'].removeprefix('default/')}/{container['name']}")
            owners |= dict.fromkeys(CPUSet.parse(container["cpus"]), owner)
    return svg(sources.load(NODE), owners)


PICTURES: Final[Mapping[str, Callable[[], str]]] = {
    "node.svg": node,
    "machine.svg": partial(corelane, "topology", "-o", "svg", "--machine", "socket:2 numa:2 core:8 smt:2"),
    "limits-pytorch.svg": partial(corelane, "limits", "simulate", "pytorch", "-o", "svg"),
}


if __name__ == "__main__":
    for name, draw in PICTURES.items():
        (IMAGES / name).write_text(draw())
