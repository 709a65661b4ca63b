"""The ledger's file: read at the start, replaced before a change takes effect, never thrown away unread."""

from dataclasses import dataclass
from itertools import count
from pathlib import Path

from corelane.kernel import files
from corelane.machine.model import Machine
from corelane.node import LedgerError, NodeConfig, NodeState, codec, new, rebase

FILE_NAME = "ledger.json"


@dataclass(frozen=True, slots=True)
class Damaged:
    """A file that could not be read: where it was put aside, and what is wrong with it."""

    backup: Path
    why: str


@dataclass(frozen=True, slots=True)
class Loaded:
    """A ledger to start with, and what has to be said about it."""

    ledger: NodeState
    problems: tuple[str, ...] = ()
    damaged: Damaged | None = None


def load(path: Path, machine: Machine, config: NodeConfig) -> Loaded:
    """The ledger in a file, fitted to this machine and these settings; an empty one if there is no file.

    A file that makes no sense is put aside, and the ledger is empty: what runs will fill it again. Raises
    OSError for a file that cannot be read, NodeConfigError for settings that the machine cannot honour.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return Loaded(new(machine, config))
    try:
        ledger = codec.decode(data, machine, config)
    except LedgerError as error:
        return Loaded(new(machine, config), damaged=Damaged(_put_aside(path), str(error)))
    ledger, problems = rebase(ledger, machine, config)
    return Loaded(ledger, tuple(problem.text for problem in problems))


def save(path: Path, ledger: NodeState) -> None:
    """Replace the file; what was there before is whole until the new content is on disk. Raises OSError."""
    files.write_atomic(path, codec.encode(ledger), mode=0o600)


def _put_aside(path: Path) -> Path:
    """Rename to the first free name of `ledger.json.damaged-1`, `-2` and so on."""
    names = (path.with_name(f"{path.name}.damaged-{number}") for number in count(1))
    backup = next(name for name in names if not name.exists())
    path.rename(backup)
    return backup
