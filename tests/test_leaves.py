"""A leaf is removed from a copy of the tree: everything else imports, and its commands work."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import corelane

ROOT = Path(corelane.__file__).parent
EXAMPLES = Path(__file__).parents[1] / "examples"
EXAMPLE = EXAMPLES / "latency-critical.yaml"
IMPORT_ALL = """
import importlib, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
"""
COMMANDS = {
    "limits": [("allocate", "-f", str(EXAMPLE), "--machine", "socket:2 numa:1 core:8 smt:2")],
    "embedded": [
        ("allocate", "-f", str(EXAMPLE), "--machine", "socket:2 numa:1 core:8 smt:2"),
        ("limits", "simulate", str(EXAMPLES / "limits/long-request.yaml")),
    ],
}
"""Commands of other rooms that work without this leaf."""


def faces_of(leaf: str, path: Path) -> bool:
    """Whether a module is in the folder of `app` or `view` that has the leaf's name."""
    return path.parts[0] in ("app", "view") and path.parts[1] == leaf


@pytest.mark.parametrize("leaf", sorted(COMMANDS))
def test_everything_else_works_without_a_leaf(leaf: str, tmp_path: Path) -> None:
    package = tmp_path / "corelane"
    shutil.copytree(ROOT, package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.rmtree(package / leaf)
    paths = [path.relative_to(package) for path in sorted(package.rglob("*.py"))]
    names = [
        ".".join(("corelane", *path.with_suffix("").parts)).removesuffix(".__init__")
        for path in paths
        if path.stem != "__main__" and not faces_of(leaf, path)
    ]

    def python(*arguments: str) -> subprocess.CompletedProcess[str]:
        env = {"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
        command = [sys.executable, *arguments]
        return subprocess.run(command, env=env, text=True, capture_output=True, check=False, timeout=300)

    imported = python("-c", IMPORT_ALL, *names)
    assert imported.returncode == 0, imported.stderr
    assert str(package) in python("-c", "import corelane; print(corelane.__file__)").stdout
    for command in [("--help",), ("up", "--help"), *COMMANDS[leaf]]:
        ran = python("-m", "corelane", *command)
        assert ran.returncode == 0, (command, ran.stderr)
