"""`corelane topology`: a machine from any source in any form."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Final

from corelane.app import machines
from corelane.machine import Machine, jsonform
from corelane.view import svg, tables
from corelane.view import topology as view


def render(source: str | None, form: str) -> str:
    """Return the machine as text of the given form, newline at the end. Raises MachineError."""
    return _FORMS[form](machines.load(source))


def _table(machine: Machine) -> str:
    out = io.StringIO()
    tables.show("", view.HEADINGS, view.table(machine), tables.console(out))
    return out.getvalue()


def _json(machine: Machine) -> str:
    return json.dumps(jsonform.to_dict(machine), indent=2) + "\n"


_FORMS: Final[dict[str, Callable[[Machine], str]]] = {
    "tree": view.tree,
    "table": _table,
    "lscpu": view.lscpu,
    "json": _json,
    "svg": svg.svg,
}
