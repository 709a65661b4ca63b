"""Ending what a corelane that is not running any more has left behind."""

from pathlib import Path

from corelane.runtime.enforce import Mode
from corelane.runtime.local import LocalRuntime


async def end_instance(state: Path, grace_seconds: float, *, cgroups: Mode = "auto") -> bool:
    """End all containers of a state directory, remove their cgroups and the directory; False if it is none.

    Raises StateInUse if a corelane runs there, and an ExceptionGroup if something cannot be ended.
    """
    if not (state / "instance").exists():
        return False
    runtime = await LocalRuntime.open(state, cgroups=cgroups)
    await runtime.destroy(grace_seconds)
    return True
