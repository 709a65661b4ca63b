"""Files of `corelane up` that are broken one at a time, and what has to be said about each.

Whatever is broken, every running pod goes on as it is. A fault strikes while corelane is dead (cold), or
while it runs (hot). A start may be refused, with a remedy in the message, which the soak then follows.
"""

import contextlib
import os
import random
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from soak_pods import Workload
from soak_up import Up

GARBAGE: Final = b"\xff\x00 not what it was \xfe" * 40


def garbage(path: Path) -> None:
    path.write_bytes(GARBAGE)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def missing(path: Path) -> None:
    path.unlink()


def directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def truncated(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def other_type(path: Path) -> None:
    path.write_text('{"id": 3, "version": "x"}')


def flipped(path: Path) -> None:
    """Change one digit: still JSON, but not what was written."""
    data = bytearray(path.read_bytes())
    place = next(at for at in range(len(data) * 2 // 3, len(data)) if 48 <= data[at] <= 57)
    data[place] = 48 + (data[place] - 47) % 10
    path.write_bytes(data)


def dangling(path: Path) -> None:
    path.unlink()
    path.symlink_to("nowhere")


DAMAGES: Final = (garbage, empty, missing, directory, truncated, other_type, dangling)


@dataclass(frozen=True)
class Fault:
    """`says`: what has to be in corelane's output after the next start, or in that of the one that ends.

    `stops`: whether a running corelane has to notice, and end with exit status 1.
    """

    name: str
    area: str
    strike: Callable[["Ground"], object]
    says: str = ""
    hot: bool = False
    stops: bool = False
    forgets: bool = False
    """Whether records and API are lost together, so that pods come back without class and labels."""


@dataclass
class Ground:
    """Where faults strike."""

    up: Up
    workload: Workload
    chance: random.Random

    @property
    def data(self) -> Path:
        return self.up.data

    def record(self) -> Path:
        """Return the directory of the records of a running container."""
        pod = self.chance.choice(self.workload.live())
        ident = pod.ids[self.chance.choice(pod.containers)].partition("://")[2]
        return self.up.containers / ident

    def log(self) -> Path:
        """Return the log of a running container. Raises FileNotFoundError if earlier faults left none."""
        uids = {pod.uid for pod in self.workload.live()}
        every = (self.up.node / "containers" / "logs").glob("*/*/*.log")
        logs = sorted(path for path in every if path.is_file() and path.parts[-3].rpartition("_")[2] in uids)
        if not logs:
            raise FileNotFoundError
        return self.chance.choice(logs)

    def database(self, *suffixes: str) -> list[Path]:
        return [path for end in suffixes if (path := self.data / f"apiserver.db{end}").exists()]


def copy(data: Path, to: Path) -> None:
    """Copy the files of a data directory, so that a fault from which no start recovers can be undone."""
    shutil.rmtree(to, ignore_errors=True)
    with contextlib.suppress(shutil.Error):  # a log that is moved aside meanwhile
        shutil.copytree(data, to, symlinks=True, ignore=shutil.ignore_patterns("*.sock", "lock"))


def undo(before: Path, data: Path) -> None:
    """Put back every file that is not as it was; files that are as they were keep their inodes."""
    for kept in sorted(path for path in before.rglob("*") if path.is_file()):
        path = data / kept.relative_to(before)
        if path.is_dir():
            shutil.rmtree(path)
        if not path.is_file() or path.read_bytes() != kept.read_bytes():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            shutil.copy2(kept, path)


def _of_record(name: str, damage: Callable[[Path], None]) -> Callable[[Ground], None]:
    return lambda ground: damage(ground.record() / name)


def _of_file(name: str, damage: Callable[[Path], None]) -> Callable[[Ground], None]:
    def strike(ground: Ground) -> None:
        if (path := ground.data / name).exists():
            damage(path)

    return strike


def _of_node(name: str, damage: Callable[[Path], None]) -> Callable[[Ground], None]:
    def strike(ground: Ground) -> None:
        if (path := ground.up.node / name).exists():
            damage(path)

    return strike


def _of_database(damage: Callable[[Path], None], *suffixes: str) -> Callable[[Ground], None]:
    def strike(ground: Ground) -> None:
        for path in ground.database(*suffixes):
            damage(path)

    return strike


def _page(ground: Ground) -> None:
    """Damage a page in the middle, with the log folded in first so that the page counts."""
    (path,) = ground.database("")
    _fold(path)
    data = bytearray(path.read_bytes())
    pages = len(data) // 4096
    for page in {1, pages // 2, pages - 1}:
        data[page * 4096 : (page + 1) * 4096] = b"\xff" * 4096
    path.write_bytes(data)


def _fold(path: Path) -> None:
    import sqlite3

    db = sqlite3.connect(path)
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()


def _header(ground: Ground) -> None:
    (path,) = ground.database("")
    _fold(path)
    with path.open("r+b") as file:
        file.write(b"nothing like a database")


def _both_records(ground: Ground) -> None:
    record = ground.record()
    for name in ("spec.json", "status.json"):
        ground.chance.choice(DAMAGES)(record / name)


def _ledgers(damage: Callable[[Path], None]) -> Callable[[Ground], None]:
    """Damage the ledger and whatever copies of it there are."""

    def strike(ground: Ground) -> None:
        for path in sorted(ground.up.node.glob("*ledger*.json*")):
            if path.is_file() and "damaged" not in path.name:
                damage(path)

    return strike


def _log(damage: Callable[[Path], None]) -> Callable[[Ground], None]:
    return lambda ground: damage(ground.log())


def _temporary(ground: Ground) -> None:
    """Leave what a kill between write and rename leaves, an hour ago."""
    record = ground.record()
    places = (ground.up.node / ".ledger.json.abcd1234.tmp", ground.data / ".kubeconfig.abcd1234.tmp")
    for path in (*places, record / ".spec.json.abcd1234.tmp", record / "status.json.tmp"):
        path.write_bytes(b"{")
        os.utime(path, (time.time() - 3600,) * 2)


def _orphans(ground: Ground) -> None:
    """Leave directories of containers and logs that no pod has."""
    (ground.up.containers / ("0" * 32)).mkdir()
    (ground.up.node / "containers" / "logs" / "default_gone_1-2-3" / "a").mkdir(parents=True)


def _tree(ground: Ground) -> None:
    shutil.rmtree(ground.data)


def faults() -> list[Fault]:
    """Return all faults, those of the API server's data first: they need whole records."""
    database = [
        Fault("apiserver.db missing", "database", _of_database(missing, "", "-wal", "-shm"), "recreated"),
        Fault("apiserver.db empty", "database", _of_database(empty, "", "-wal"), "recreated"),
        Fault("apiserver.db moved, log left", "database", _of_database(missing, ""), ""),
        Fault("apiserver.db-wal missing", "database", _of_database(missing, "-wal", "-shm"), ""),
        Fault("apiserver.db-wal garbage", "database", _of_database(garbage, "-wal"), ""),
        Fault("apiserver.db damaged pages", "database", _page, "damaged"),
        Fault("apiserver.db no database", "database", _header, "damaged"),
        Fault("apiserver.db directory", "database", _of_database(directory, ""), "apiserver.db"),
        Fault("apiserver.db.backup garbage", "database", _of_database(garbage, ".backup"), ""),
        Fault(
            "apiserver.db deleted, hot",
            "database",
            _of_database(missing, ""),
            "deleted or replaced",
            hot=True,
            stops=True,
        ),
        Fault(
            "apiserver.db deleted with its log, hot",
            "database",
            _of_database(missing, "", "-wal", "-shm"),
            "deleted or replaced",
            hot=True,
            stops=True,
        ),
    ]
    records = [
        Fault(f"{name} {damage.__name__}", "record", _of_record(name, damage), "rebuilt from process")
        for name in ("spec.json", "status.json")
        for damage in DAMAGES
    ]
    records += [
        Fault("both records damaged", "record", _both_records, "rebuilt from process"),
        Fault(
            "record directory deleted",
            "record",
            lambda ground: shutil.rmtree(ground.record()),
            "rebuilt from process",
        ),
        Fault("lock of a record missing", "record", _of_record("lock", missing), ""),
        Fault(
            "shim.err directory",
            "record",
            lambda ground: (
                (ground.record() / "shim.err").exists() and directory(ground.record() / "shim.err")
            ),
            "",
        ),
        Fault("both records damaged, hot", "record", _both_records, "", hot=True),
        Fault(
            "record directory deleted, hot",
            "record",
            lambda ground: shutil.rmtree(ground.record()),
            "",
            hot=True,
        ),
        Fault(
            "all records deleted",
            "record",
            lambda ground: shutil.rmtree(ground.up.containers),
            "rebuilt from process",
        ),
        *(
            Fault(
                f"instance {damage.__name__}", "record", _of_node("containers/instance", damage), "instance"
            )
            for damage in (garbage, empty, missing, directory)
        ),
    ]
    ledger = [
        *(
            Fault(f"ledger {damage.__name__}", "ledger", _of_node("ledger.json", damage), "")
            for damage in (*DAMAGES, flipped)
        ),
        *(
            Fault(f"ledger and copies {damage.__name__}", "ledger", _ledgers(damage), "")
            for damage in (garbage, missing, truncated)
        ),
        *(
            Fault(f"settings {damage.__name__}", "ledger", _of_node("settings.json", damage), "")
            for damage in (garbage, missing, directory)
        ),
        Fault("ledger deleted, hot", "ledger", _of_node("ledger.json", missing), "", hot=True),
    ]
    access = [
        Fault(f"{name} {damage.__name__}", "access", _of_file(name, damage), "")
        for name in ("kubeconfig", "server.pem", "ca.crt", "lock", "apiserver.lock", "scheduler.json")
        for damage in (garbage, missing, empty)
    ]
    logs = [
        *(
            Fault(f"log {damage.__name__}", "logs", _log(damage), "")
            for damage in (missing, directory, garbage)
        ),
        *(
            Fault(f"log {damage.__name__}, hot", "logs", _log(damage), "", hot=True)
            for damage in (missing, directory, garbage)
        ),
        Fault(
            "log directory of a pod deleted, hot",
            "logs",
            lambda ground: shutil.rmtree(ground.log().parents[1]),
            "",
            hot=True,
        ),
        Fault(
            "all logs deleted",
            "logs",
            lambda ground: shutil.rmtree(ground.up.node / "containers" / "logs"),
            "",
        ),
        Fault("temporary files left", "left", _temporary, ""),
        Fault("directories left", "left", _orphans, ""),
    ]
    trees = [
        Fault(
            "ledger, records and logs deleted",
            "tree",
            lambda ground: shutil.rmtree(ground.data / "nodes"),
            "rebuilt from process",
        ),
        Fault(
            "data directory deleted, hot",
            "tree",
            _tree,
            "deleted or replaced",
            hot=True,
            stops=True,
            forgets=True,
        ),
        Fault("data directory deleted", "tree", _tree, "recreated", forgets=True),
    ]
    return [*database, *access, *logs, *ledger, *records, *trees]


def sample(chance: random.Random, count: int, only: str = "") -> list[Fault]:
    """Return so many faults in the order of `faults`, of every area; or those with `only` in name or area."""
    everything = [fault for fault in faults() if only in f"{fault.area}: {fault.name}"]
    if count >= len(everything):
        return everything
    areas = {fault.area for fault in everything}
    chosen = [chance.choice([fault for fault in everything if fault.area == area]) for area in sorted(areas)][
        :count
    ]
    rest = [fault for fault in everything if fault not in chosen]
    chosen += chance.sample(rest, max(0, count - len(chosen)))
    return [fault for fault in everything if fault in chosen]
