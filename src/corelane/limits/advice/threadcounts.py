"""How a container is told to run fewer threads: by what tells it now, else by what its image reads."""

from __future__ import annotations

from typing import Any, Final

from corelane.limits.advice import patches
from corelane.limits.advice.facts import Setting, Subject
from corelane.limits.advice.patches import Patch

__all__ = ["patch"]

_JAVA: Final = "JAVA_TOOL_OPTIONS"
_GUESS: Final = "GOMAXPROCS={} (or OMP_NUM_THREADS, worker counts: whatever its runtime reads)"


def patch(subject: Subject, count: int) -> tuple[str, Patch | None]:
    """What to set, in words, and the patch; None where it is no environment variable, or only guessed."""
    if subject.settings:
        return _changed(subject, count)
    if not subject.runtime:
        return _GUESS.format(count), None
    if not subject.runtime.isupper():
        return f"{subject.runtime} {count}", None
    value = f"-XX:ActiveProcessorCount={count}" if subject.runtime == _JAVA else str(count)
    made = patches.container(subject, {"env": [{"name": subject.runtime, "value": value}]})
    return f"{subject.runtime}={value}", made


def _changed(subject: Subject, count: int) -> tuple[str, Patch | None]:
    """Processes share the count; then each has one thread."""
    each = 1 if any(one.processes for one in subject.settings) else count
    wanted = [(one, count if one.processes else each) for one in subject.settings]
    env = [_entry(one, number) for one, number in wanted if one.env]
    words = [f"{one.name}={number}" for one, number in wanted if one.env]
    words += [f"{one.name} {number} in its arguments" for one, number in wanted if not one.env]
    complete = len(env) == len(wanted)
    return ", ".join(words), patches.container(subject, {"env": env}) if complete else None


def _entry(one: Setting, count: int) -> dict[str, Any]:
    """A value instead of whatever gave one: a merge by name keeps what is not named."""
    return {"name": one.name, "value": str(count), "valueFrom": None}
