"""One reporter in front of several."""

from collections.abc import Callable
from typing import Any

from corelane.scheduler.decisions import DecisionReporter


class DecisionReporters(DecisionReporter):
    """Hands every hook on to each of the reporters, in order."""

    def __init__(self, *reporters: DecisionReporter) -> None:
        for name in (name for name in vars(DecisionReporter) if not name.startswith("_")):
            setattr(self, name, _each([getattr(reporter, name) for reporter in reporters]))


def _each(hooks: list[Callable[..., None]]) -> Callable[..., None]:
    def hook(*arguments: Any, **named: Any) -> None:
        for one in hooks:
            one(*arguments, **named)

    return hook
