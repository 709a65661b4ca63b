"""Data of `corelane agent status`: from the running agent, else from the files that it left."""

from __future__ import annotations

import json
import platform
import sys
from pathlib import Path
from typing import Any, Final, Literal

from corelane import input_files
from corelane.agent import agent_status, saved_state, state_directory
from corelane.app import machines
from corelane.machine import MachineError
from corelane.node import NodeConfigError, codec
from corelane.node.config import NodeConfig
from corelane.node.ledger import LedgerError
from corelane.runtime.nri import acting_lock
from corelane.runtime.nri.acting_lock import state_lock
from corelane.view import agent_status as view
from corelane.view import tables


class NoAgent(Exception):  # noqa: N818 - a state
    """No agent answers with this state directory, or it cannot be read, and no files show a state."""


def main(state_dir: Path, form: Literal["table", "json"]) -> int:
    """Print the status; return 1 where no agent runs. Raises NoAgent, OSError for unreadable files."""
    status = read(state_dir)
    if form == "json":
        json.dump(status, sys.stdout, indent=2)
        sys.stdout.write("\n")
    else:
        view.show(status, tables.console())
    return 0 if status["running"] else 1


def read(state_dir: Path) -> dict[str, Any]:
    """Return the status of the running agent, else what its files hold. Raises NoAgent, OSError."""
    try:
        return state_directory.read_status(state_dir)
    except TimeoutError:
        raise NoAgent(
            f"{_holder(state_dir) or 'the agent'} does not answer on "
            f"{state_dir / state_directory.SOCKET_FILE} within 5 s: it is stopped or overloaded; see its "
            "log, or restart it (containers keep their CPUs)"
        ) from None
    except PermissionError as error:
        raise NoAgent(
            f"{state_dir}: {error.strerror}; run this command as the user of the agent, as a rule root"
        ) from error
    except (FileNotFoundError, ConnectionRefusedError):
        return saved(state_dir)


def saved(state_dir: Path) -> dict[str, Any]:
    """Return a status from the saved files. Raises NoAgent, OSError."""
    path = state_dir / saved_state.LEDGER_FILE
    holder = _holder(state_dir)
    if not path.exists():
        why = f"{holder} starts, or waits for another agent; ask again" if holder else _NO_AGENT
        raise NoAgent(f"{state_dir}: {why}")
    settings_file = state_dir / saved_state.SETTINGS_FILE
    try:
        settings, settings_fault = saved_state.load_settings(settings_file)
    except OSError as error:
        settings, settings_fault = saved_state.NOTHING_SAVED, f"{settings_file}: {error.strerror or error}"
    ledger, fault = None, ""
    try:
        content = input_files.read(path, input_files.OBJECTS_BYTES, regular=True)
        ledger = codec.decode(content, machines.load(None), NodeConfig())
    except (LedgerError, NodeConfigError, MachineError) as error:
        fault = str(error)
    except OSError as error:
        fault = f"{path}: {error.strerror or error}"
    status = agent_status.document(platform.node(), policy=settings.policy)
    if holder:
        status["fault"] = f"{holder} acts, but has no {state_directory.SOCKET_FILE}; see its log"
    generation = ledger.generation if ledger else 0
    status["ledger"] |= {"path": str(path), "generation": generation, "fault": fault}
    status["settingsFault"] = settings_fault
    status["containers"] = agent_status.phases(ledger) if ledger else {}
    return status


_NO_AGENT: Final = (
    f"no agent runs with this state directory, and it has no {saved_state.LEDGER_FILE}; start an "
    "agent with `corelane agent run`, or name its directory with --state-dir"
)


def _holder(state_dir: Path) -> str:
    """Return the process that acts with a state directory, "" where none does or it cannot be known."""
    try:
        return acting_lock.holder(state_lock(state_dir).path)
    except OSError:
        return ""
