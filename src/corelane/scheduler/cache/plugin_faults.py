"""Errors of plugins that end no attempt, each reported once."""

from collections.abc import Callable
from typing import Final

_MOST: Final = 256


class PluginFaults:
    """Hands errors on to `report`: plugin, method, error; of one plugin, method and type the first one."""

    def __init__(self) -> None:
        self.report: Callable[[str, str, Exception], None] = lambda _plugin, _method, _error: None
        self._known: set[tuple[str, str, str]] = set()

    def add(self, plugin: str, method: str, error: Exception) -> None:
        key = plugin, method, type(error).__name__
        if key not in self._known and len(self._known) < _MOST:
            self._known.add(key)
            self.report(plugin, method, error)
