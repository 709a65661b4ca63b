"""What became of a container, as the shim records it."""
# ruff: noqa: PTH118, PTH123, PTH104

from __future__ import annotations

import os
import time

from .processes import start_ticks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

RECORD_ATTEMPTS = 30


class OutcomeRecord:
    """status.json, replaced atomically."""

    def __init__(self, directory: str) -> None:
        self.path = os.path.join(directory, "status.json")
        with open("/proc/sys/kernel/random/boot_id") as file:
            boot = file.read().strip()
        me = os.getpid()
        self.fields: dict[str, Any] = {
            "version": 1,
            "boot_id": boot,
            "shim_pid": me,
            "shim_ticks": start_ticks(me),
        }

    def write(self, **fields: object) -> None:
        self.fields |= fields
        temporary = f"{self.path}.tmp"
        with open(temporary, "w") as file:
            file.write(_json(self.fields))
            file.flush()
            if fields["state"] != "running":  # nothing that runs outlives the machine
                os.fsync(file.fileno())
        os.rename(temporary, self.path)

    def write_at_last(self, **fields: object) -> None:
        """Write what must not be lost, be the disk full just now; give up once our directory is gone."""
        for _ in range(RECORD_ATTEMPTS):
            try:
                return self.write(**fields)
            except FileNotFoundError:
                return None
            except OSError:
                time.sleep(1)
        return None


def _json(fields: dict[str, Any]) -> str:
    """The fields as JSON; every string in them is one of our own plain words."""
    shown = (
        f'"{key}": "{value}"' if isinstance(value, str) else f'"{key}": {value!r}'
        for key, value in fields.items()
    )
    return "{" + ", ".join(shown) + "}\n"
