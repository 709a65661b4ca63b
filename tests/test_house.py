"""The size and cut of every room stay within budgets, which an issue raises for its own rooms."""

import importlib.util
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[1]
LINES = {
    "agent": 7_380,
    "app": 5_740,
    "cli": 1_960,
    "embedded": 24_300,
    "fleet": 560,
    "ground floor": 1_420,
    "kernel": 3_820,
    "kube": 7_715,
    "limits": 11_571,
    "machine": 2_340,
    "node": 9_625,
    "placement": 5_570,
    "reasons": 1_360,
    "runtime": 4_060,
    "scheduler": 18_410,
    "view": 4_240,
    "workload": 540,
}
"""Most lines of a room. `make bench-house` prints what they have."""
FILES = 500
SMALL_MODULES = 0
CALLABLES = 6
DEPTH = 41


def bench_house() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_house", ROOT / "bench/house.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_rooms_stay_within_their_budgets(monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    house = bench_house().House(ROOT)
    lines, files = house.by_room()
    assert lines.keys() == LINES.keys()
    over = {room: (count, LINES[room]) for room, count in lines.items() if count > LINES[room]}
    assert not over, f"lines, and budget: {over}"
    assert files.total() <= FILES
    assert len(house.small_with_one_importer()) <= SMALL_MODULES
    assert house.callables("agent", "scheduler") <= CALLABLES
    assert len(house.longest_chain()) <= DEPTH
