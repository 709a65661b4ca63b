"""The plugins that corelane ships, and those that other packages add by entry points.

An entry point of the group `corelane.scheduler.plugins` names a callable that takes the plugin's `args` of
the configuration as keywords, and returns the plugin.
"""

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from corelane.scheduler.framework.plugin import Plugin

Factory: TypeAlias = Callable[..., Plugin]
GROUP: Final = "corelane.scheduler.plugins"


class RegistryError(ValueError):
    """A plugin that cannot be loaded, or a name that two packages use; says what to do."""


def added() -> Mapping[str, Factory]:
    """Return the factories of other packages by name. Raises RegistryError."""
    from importlib.metadata import entry_points  # 0.8 MB, and only a configuration file names such plugins

    factories: dict[str, Factory] = {}
    for point in entry_points(group=GROUP):
        if point.name in factories:
            raise RegistryError(f"scheduler plugin {point.name}: two packages offer it; uninstall one")
        try:
            factories[point.name] = point.load()
        except Exception as error:  # a third party's import may raise anything
            raise RegistryError(f"scheduler plugin {point.name} ({point.value}): {error}") from error
    return factories
