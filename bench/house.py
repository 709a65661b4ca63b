"""The house in figures: how large each room is, how finely it is cut, and how far an engineer walks in it.

- lines and files: of src/corelane by room.
- functions: lines from `def` to the end, without decorators and docstring, median and 90th percentile.
- small modules: fewer than 80 lines, and imported by a single module beside packages' `__init__`.
- Callable parameters: of `__init__`, and fields of dataclasses, in agent/ and scheduler/.
- import depth: modules on the longest chain of imports, those inside functions included.
- agent run: lines of corelane that `corelane agent run` loads before it connects to anything.
- paths: as `make bench-paths` counts them.

`make bench-house` prints them and writes build/bench/house.json. `--tree DIR` measures another checkout's
src, without the last two; `--list` prints the small modules and the longest chain, too.
"""

# ruff: noqa: T201
import argparse
import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cached_property
from graphlib import TopologicalSorter
from pathlib import Path
from statistics import median, quantiles

import report
from report import ROOT, Row

SMALL = 80
LOADED = """
import sys
from corelane.app.agent import command
modules = [module for name, module in sys.modules.items() if name.startswith("corelane")]
files = {module.__file__ for module in modules if getattr(module, "__file__", None)}
print(sum(len(open(file).readlines()) for file in files))
"""
TARGETS = {
    "src: lines": 108_000,
    "src: files": 560,
    "small modules with one importer": 18,
    "Callable parameters, agent and scheduler": 25,
    "import depth": 42,
    "agent run: lines loaded": 35_000,
}
PATH_TARGETS = {
    "PodChanged -> Bind": 82,
    "PodSeen -> Start": 24,
    "counters -> advice": 24,
    "sysfs -> Machine": 8,
}


class House:
    """The modules of a checkout, parsed once, by dotted name without the package's."""

    def __init__(self, tree: Path) -> None:
        self.root = tree / "src/corelane"
        self.paths = {self._name(path): path for path in sorted(self.root.rglob("*.py"))}
        self.texts = {name: path.read_text() for name, path in self.paths.items()}
        self.trees = {name: ast.parse(text) for name, text in self.texts.items()}

    def _name(self, path: Path) -> str:
        return ".".join(path.relative_to(self.root).with_suffix("").parts).removesuffix(".__init__")

    def lines(self, name: str) -> int:
        return self.texts[name].count("\n")

    def room(self, name: str) -> str:
        first = name.split(".")[0]
        return first if (self.root / first).is_dir() else "ground floor"

    def by_room(self) -> tuple[Counter[str], Counter[str]]:
        """Return lines and files by room."""
        lines: Counter[str] = Counter()
        files: Counter[str] = Counter()
        for name in self.paths:
            lines[self.room(name)] += self.lines(name)
            files[self.room(name)] += 1
        return lines, files

    @cached_property
    def imports(self) -> Mapping[str, set[str]]:
        """What every module imports of the others; a package that is only passed through does not count."""
        return {name: set(self._imported(name)) - {name} for name in self.paths}

    def _imported(self, own: str) -> Iterator[str]:
        is_package = self.paths[own].stem == "__init__"
        for node in ast.walk(self.trees[own]):
            if isinstance(node, ast.Import):
                names = [alias.name.removeprefix("corelane.") for alias in node.names]
                yield from (name for name in names if name in self.paths)
            elif isinstance(node, ast.ImportFrom):
                base = self._base(own, node, is_package=is_package)
                members = [f"{base}.{alias.name}".lstrip(".") for alias in node.names]
                modules = [name for name in members if name in self.paths]
                yield from modules
                if len(modules) < len(members) and base in self.paths:
                    yield base

    def _base(self, own: str, node: ast.ImportFrom, *, is_package: bool) -> str:
        if node.level:
            parts = own.split(".")[: None if is_package and node.level == 1 else -node.level + is_package]
            return ".".join([*parts, *([node.module] if node.module else [])])
        module = node.module or ""
        return module.removeprefix("corelane").removeprefix(".") if module.startswith("corelane") else "-"

    def small_with_one_importer(self) -> list[str]:
        importers: dict[str, set[str]] = {name: set() for name in self.paths}
        for name, imported in self.imports.items():
            for other in imported:
                importers[other].add(name)
        return [
            name
            for name, path in self.paths.items()
            if path.stem not in ("__init__", "__main__")
            and self.lines(name) < SMALL
            and len(importers[name]) == 1
        ]

    def longest_chain(self) -> list[str]:
        chains: dict[str, list[str]] = {}
        graph = {
            name: {each for other in imported for each in self._loaded(other) if not within(name, each)}
            for name, imported in self.imports.items()
        }
        for name in TopologicalSorter(graph).static_order():
            below = max((chains[other] for other in graph[name]), key=len, default=[])
            chains[name] = [name, *below]
        return max(chains.values(), key=len)

    def _loaded(self, name: str) -> Iterator[str]:
        """Yield a module and the packages that it is in, which are loaded before it."""
        while name:
            yield name
            name = name.rpartition(".")[0]

    def function_lines(self) -> list[int]:
        return [
            _length(node)
            for tree in self.trees.values()
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ]

    def callables(self, *rooms: str) -> int:
        return sum(
            _callables(node)
            for name, tree in self.trees.items()
            if name.split(".")[0] in rooms
            for node in ast.walk(tree)
            if isinstance(node, ast.ClassDef)
        )


def within(name: str, package: str) -> bool:
    """Whether a module is the package or in it."""
    return name == package or name.startswith(f"{package}.")


def _length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    first, whole = function.body[0], (function.end_lineno or 0) - function.lineno + 1
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
        return whole - ((first.end_lineno or 0) - first.lineno + 1)
    return whole


def _callables(node: ast.ClassDef) -> int:
    """Return how many arguments of a class's constructor are functions."""
    init = next(
        (one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__init__"), None
    )
    if init is not None:
        arguments = [*init.args.args, *init.args.kwonlyargs]
        return sum("Callable[" in ast.unparse(one.annotation) for one in arguments if one.annotation)
    if not any("dataclass" in ast.unparse(one) for one in node.decorator_list):
        return 0
    fields = [one for one in node.body if isinstance(one, ast.AnnAssign)]
    return sum("Callable[" in ast.unparse(one.annotation) for one in fields)


def rows_of(house: House) -> Iterator[Row]:
    """Yield the figures of a checkout's text."""
    lines, files = house.by_room()
    for room in sorted(lines):
        yield Row(f"{room}: lines", lines[room], "lines", None)
        yield Row(f"{room}: files", files[room], "files", None)
    sizes = house.function_lines()
    figures = {
        "src: lines": (lines.total(), "lines"),
        "src: files": (files.total(), "files"),
        "functions, median": (median(sizes), "lines"),
        "functions, 90th percentile": (quantiles(sizes, n=10)[-1], "lines"),
        "small modules with one importer": (len(house.small_with_one_importer()), "modules"),
        "Callable parameters, agent and scheduler": (house.callables("agent", "scheduler"), "parameters"),
        "import depth": (len(house.longest_chain()), "modules"),
    }
    for name, (value, unit) in figures.items():
        yield Row(name, value, unit, TARGETS.get(name))


def rows_of_runs() -> Iterator[Row]:
    """Yield the figures for which corelane runs."""
    import paths

    loaded = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True)
    name = "agent run: lines loaded"
    yield Row(name, int(loaded.stdout), "lines", TARGETS[name])
    for path, (runs, _) in paths.PATHS.items():
        yield Row(path, len(paths.files_on(runs)), "files", PATH_TARGETS[path])


def main() -> None:
    parser = argparse.ArgumentParser(description="print the size and cut of every room")
    parser.add_argument(
        "--tree", type=Path, default=ROOT, help="another checkout, of which only the text counts"
    )
    parser.add_argument("--list", action="store_true", help="print small modules and the longest chain")
    options = parser.parse_args()
    house = House(options.tree)
    rows = [*rows_of(house), *(rows_of_runs() if options.tree == ROOT else ())]
    if options.list:
        print("small modules with one importer:", *house.small_with_one_importer(), sep="\n  ")
        print("longest chain:", *house.longest_chain(), sep="\n  ")
    report.show(rows)
    report.keep("house", rows)


if __name__ == "__main__":
    main()
