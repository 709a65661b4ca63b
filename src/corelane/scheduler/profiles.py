"""Profiles from a configuration file, of the plugins that are here and those that other packages add."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from corelane import input_files
from corelane.scheduler.framework import configuration
from corelane.scheduler.framework.configuration import Configuration, ConfigurationError, Offer
from corelane.scheduler.framework.profile import Factory, RegistryError, added
from corelane.scheduler.plugins import default

REQUIRED: Final = ("PodValidity", "CPUPlacement", "NodeResourcesFit")
MOST_CHARACTERS: Final = 1 << 20


def offer(third_party: Mapping[str, Factory]) -> Offer:
    """Return the plugins to choose from. Raises RegistryError where a name is taken."""
    for name in third_party:
        if name in default.FACTORIES:
            raise RegistryError(f"scheduler plugin {name}: corelane has a plugin of this name; rename it")
    return Offer({**default.FACTORIES, **third_party}, default.ORDER, default.WEIGHTS, REQUIRED)


@dataclass(frozen=True, slots=True)
class ConfigurationFile:
    """A file that was valid when it was read."""

    text: str
    source: str

    def configuration(self) -> Configuration:
        """Return what it says, with plugins made anew. Raises ConfigurationError, RegistryError."""
        return configuration.parse(self.text, self.source, offer(added()))


def read(path: Path) -> ConfigurationFile:
    """Return the file, checked. Raises ConfigurationError and RegistryError."""
    try:
        text = input_files.read(path).decode()
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror}; give a file that can be read") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path}: not text: {error}") from error
    if len(text) > MOST_CHARACTERS:
        raise ConfigurationError(f"{path}: {len(text)} characters; give {MOST_CHARACTERS} at most")
    file = ConfigurationFile(text, str(path))
    file.configuration()
    return file
