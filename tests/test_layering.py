"""The design's table of imports, held against the code: a room imports only what its row names.

Sub-rooms are held too: which of a room's parts may import which of its other parts. Imports under
`TYPE_CHECKING` and inside functions count like any other.
"""

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import corelane

ROOT = Path(corelane.__file__).parent

_CORE = "cpuset quantity durations names reasons machine workload placement node"
_DAEMON = f"{_CORE} kube input_files yaml_keys settings"
ALLOWED = {
    "cpuset": "",
    "quantity": "",
    "durations": "",
    "supervise": "",
    "names": "",
    "input_files": "",
    "yaml_keys": "",
    "settings": "cpuset quantity yaml_keys",
    "prometheus": "",
    "interrupts": "",
    "structured_log": "",
    "reasons": "cpuset quantity",
    "kernel": "cpuset",
    "machine": "cpuset kernel input_files",
    "workload": "cpuset quantity",
    "placement": "cpuset reasons machine workload",
    "node": "cpuset quantity reasons machine workload placement",
    "limits": "cpuset quantity durations reasons machine workload kernel yaml_keys settings",
    "runtime": "cpuset kernel",
    "kube": "cpuset quantity reasons machine workload placement node input_files yaml_keys",
    "fleet": "cpuset quantity names input_files reasons machine workload node kube",
    "agent": f"{_DAEMON} kernel runtime structured_log",
    "scheduler": f"{_DAEMON} prometheus structured_log",
    "view": f"{_CORE} kernel limits",
}
ALLOWED["app"] = " ".join(sorted(ALLOWED))
ALLOWED["embedded"] = " ".join(sorted({*ALLOWED} - {"limits"}))
ALLOWED["cli"] = " ".join(sorted(ALLOWED))
"""What a room may import from corelane beside itself."""

_APISERVER = ("schema", "codec", "store", "validation", "ownership", "write", "openapi", "http")


def _apiserver_but(own: str, below: str = "") -> str:
    return " ".join(f"embedded.apiserver.{part}" for part in _APISERVER if part not in {own, *below.split()})


_CYCLE = "scheduler.queue scheduler.cycle scheduler.binding scheduler.core scheduler.daemon"
_ABOVE_BINDING = "scheduler.explain scheduler.core scheduler.daemon"
FORBIDDEN = {
    "placement.kubelet": "placement.koordinator placement.optimal",
    "placement.koordinator": "placement.kubelet placement.optimal",
    "placement.optimal": "placement.kubelet placement.koordinator",
    "node.kubelet": "node.pools node.explain node.recovery",
    "node.pools": "node.kubelet node.explain node.recovery",
    "agent.allocation": "agent.publication agent.kubelet agent.event_loop",
    "agent.kubelet": "agent.node_agent agent.node_sources agent.node_publication agent.execution",
    "agent.publication": "agent.node_agent agent.execution agent.reporting agent.saved_state",
    "limits.model": "limits.measure limits.advice limits.lint limits.calibration",
    "limits.measure": "limits.advice limits.lint limits.calibration",
    "limits.lint": "limits.advice limits.calibration",
    "limits.advice": "limits.calibration",
    "embedded.apiserver": "embedded.housekeeping embedded.pods embedded.containers embedded.up embedded.demo",
    "embedded.housekeeping": "embedded.pods embedded.containers embedded.up embedded.demo",
    "embedded.containers": "embedded.apiserver embedded.housekeeping embedded.pods embedded.up embedded.demo",
    "embedded.pods": "embedded.apiserver embedded.housekeeping embedded.up embedded.demo",
    "scheduler.cluster": f"scheduler.framework scheduler.plugins {_CYCLE}",
    "scheduler.framework": f"scheduler.plugins {_CYCLE}",
    "scheduler.plugins": _CYCLE,
    "scheduler.queue": "scheduler.cycle scheduler.binding scheduler.core scheduler.daemon scheduler.plugins",
    "scheduler.cycle": f"scheduler.binding {_ABOVE_BINDING}",
    "scheduler.binding": f"scheduler.cycle scheduler.plugins {_ABOVE_BINDING}",
    "embedded.apiserver.schema": _apiserver_but("schema"),
    "embedded.apiserver.codec": _apiserver_but("codec", "schema"),
    "embedded.apiserver.store": _apiserver_but("store", "schema codec"),
    "embedded.apiserver.validation": _apiserver_but("validation", "schema codec"),
    "embedded.apiserver.ownership": _apiserver_but("ownership", "schema codec validation"),
    "embedded.apiserver.write": _apiserver_but("write", "schema codec store validation ownership"),
    "embedded.apiserver.openapi": _apiserver_but("openapi", "schema"),
}
"""What a sub-room must not import of its own room."""
SHARED_BELOW = {"placement": "", "node": "admission __init__", "embedded/apiserver": "served_kinds"}
"""Files of a room beside its sub-rooms import none of these, but for those that are named here."""

STDLIB_ONLY = {*_CORE.split(), "kernel"}
_METRICS = ("prometheus.py", "scheduler/daemon/", "embedded/apiserver/http/metrics.py")
THIRD_PARTY_ONLY_IN = {"h2": ("runtime/",), "numpy": ("scheduler/",), "prometheus_client": _METRICS}


def module(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imported(path: Path) -> Iterator[str]:
    """Every absolute module name that a file imports, relative ones resolved."""
    package = ("corelane", *path.relative_to(ROOT).parent.parts)
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            name = ".".join((*base, *((node.module or "").split(".") if node.module else ())))
            yield name
            yield from (f"{name}.{alias.name}" for alias in node.names)


def own_imports(path: Path) -> set[str]:
    """The files of corelane that a file imports, as modules without the package's name."""
    names = (name.removeprefix("corelane.") for name in imported(path) if name.startswith("corelane."))
    return {name for name in names if name in MODULES}


def room(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def files() -> list[Path]:
    return [p for p in sorted(ROOT.rglob("*.py")) if room(p) not in {"__init__", "__main__"}]


MODULES = {module(path): path for path in files()}


def within(name: str, part: str) -> bool:
    return name == part or name.startswith(f"{part}.")


def test_rooms_import_only_what_their_rows_allow() -> None:
    for path in MODULES.values():
        own = room(path)
        allowed = {own, "__version__", *ALLOWED[own].split()}
        for name in imported(path):
            parts = name.split(".")
            if parts[0] == "corelane" and len(parts) > 1:
                assert parts[1] in allowed, f"{path.relative_to(ROOT)} imports {name}"


def test_third_party_imports_stay_where_they_belong() -> None:
    for path in MODULES.values():
        relative = str(path.relative_to(ROOT))
        for name in imported(path):
            top = name.split(".")[0]
            homes = THIRD_PARTY_ONLY_IN.get(top)
            assert homes is None or relative.startswith(homes), f"{relative} imports {top}"
            if room(path) in STDLIB_ONLY:
                assert top in sys.stdlib_module_names or top == "corelane", f"{relative} imports {top}"


@pytest.mark.parametrize("part", FORBIDDEN)
def test_sub_rooms_do_not_import_what_lies_beside_or_above_them(part: str) -> None:
    for name, path in MODULES.items():
        if within(name, part):
            for other in FORBIDDEN[part].split():
                bad = [one for one in own_imports(path) if within(one, other)]
                assert not bad, f"{name} imports {bad}"


@pytest.mark.parametrize("own", SHARED_BELOW)
def test_what_sub_rooms_share_imports_none_of_them(own: str) -> None:
    subs = [module(p.parent / "__init__.py") for p in (ROOT / own).glob("*/__init__.py")]
    for path in (ROOT / own).glob("*.py"):
        if path.stem not in SHARED_BELOW[own].split():
            bad = [name for name in own_imports(path) for sub in subs if within(name, sub)]
            assert not bad, f"{own}.{path.stem} imports {bad}"


def test_only_the_one_admission_imports_both_node_policies() -> None:
    both = {
        name
        for name, path in MODULES.items()
        if room(path) == "node"
        and any(within(one, "node.kubelet") for one in own_imports(path))
        and any(within(one, "node.pools") for one in own_imports(path))
    }
    assert {
        name for name in both if not within(name, "node.explain") and not within(name, "node.recovery")
    } <= {"node", "node.admission"}


def test_no_circle_of_imports() -> None:
    graph: dict[str, set[str]] = defaultdict(set)
    for name, path in MODULES.items():
        packages = {other for other in MODULES if name.startswith(f"{other}.")}
        graph[name] = own_imports(path) - {name} - packages
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_every_room_has_a_row() -> None:
    assert {room(p) for p in files()} <= set(ALLOWED)
