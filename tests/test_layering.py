"""The design's table of imports, held against the code: a room imports only what its row names."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import corelane

ROOT = Path(corelane.__file__).parent

_CORE = "cpuset machine workload placement node kube"
ALLOWED = {
    "cpuset": "",
    "kernel": "cpuset",
    "machine": "cpuset kernel",
    "workload": "cpuset",
    "placement": "cpuset machine workload",
    "node": "cpuset machine workload placement",
    "limits": "cpuset machine workload kernel",
    "runtime": "cpuset kernel",
    "kube": "cpuset machine workload placement node",
    "apiserver": "kube",
    "agent": "cpuset kernel machine workload placement node runtime kube",
    "scheduler": _CORE,
    "controller": _CORE,
    "simulation": f"{_CORE} kernel limits runtime agent scheduler controller",
    "view": "cpuset machine workload placement node limits",
    "dashboard": "view kube",
}
EVERYTHING = {*ALLOWED, "app"}
ALLOWED["app"] = " ".join(sorted(ALLOWED))
ALLOWED["cli"] = " ".join(sorted(EVERYTHING))
STDLIB_ONLY = {"cpuset", "kernel", "machine", "workload", "placement", "node"}
THIRD_PARTY_ONLY_IN = {"lightkube": ("kube/client.py",), "grpc": ("runtime/",)}


def imported(path: Path) -> Iterator[str]:
    """Every absolute module name that a file imports, relative ones resolved."""
    package = ("corelane", *path.relative_to(ROOT).parent.parts)
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join((*base, *((node.module or "").split(".") if node.module else ())))
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


def room(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def files() -> list[Path]:
    return [p for p in sorted(ROOT.rglob("*.py")) if room(p) not in {"__init__", "__main__"}]


@pytest.mark.parametrize("path", files(), ids=lambda p: str(p.relative_to(ROOT)))
def test_room_imports_only_what_its_row_allows(path: Path) -> None:
    own = room(path)
    allowed = {own, "__version__", *ALLOWED[own].split()}
    for name in imported(path):
        parts = name.split(".")
        if parts[0] == "corelane" and len(parts) > 1:
            assert parts[1] in allowed, f"{own} imports {name}"


@pytest.mark.parametrize("path", files(), ids=lambda p: str(p.relative_to(ROOT)))
def test_third_party_imports_stay_where_they_belong(path: Path) -> None:
    import sys

    relative = str(path.relative_to(ROOT))
    for name in imported(path):
        top = name.split(".")[0]
        homes = THIRD_PARTY_ONLY_IN.get(top)
        assert homes is None or relative.startswith(homes), f"{relative} imports {top}"
        if room(path) in STDLIB_ONLY:
            assert top in sys.stdlib_module_names or top == "corelane", f"{relative} imports {top}"


def test_every_room_has_a_row() -> None:
    assert {room(p) for p in files()} <= set(ALLOWED)
