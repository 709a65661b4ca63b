"""The owners of CPUs for maps and drawings, with the same letters and colours in both."""

import colorsys
from collections.abc import Mapping
from dataclasses import dataclass

from corelane.machine.model import Machine

_PALETTE = (
    "#2f6db5", "#f2912f", "#3d8b4a", "#8e5ea2", "#d1495b", "#5ab8b2",
    "#e9c846", "#8c6248", "#f4a3b3", "#a3c644", "#41557e", "#8fc1ea",
)  # fmt: skip
_LETTERS = "ABCDEFGHIJKLMNOPQSTUVWXYZabcdefghijklmnopqstuvwxyz"
_NEUTRAL = {"shared": ("░", "#c3ccd6"), "reserved": ("R", "#8b949e")}


@dataclass(frozen=True, slots=True)
class Owner:
    """A container as `namespace/pod/container` with its QoS class, or a pool.

    The classes `shared` (shared pool) and `reserved` (the system's CPUs) are drawn in grey.
    """

    name: str
    qos: str = ""


@dataclass(frozen=True, slots=True)
class LegendEntry:
    """A line of the legend: `colour` is #rrggbb, `mask` the owner's CPUs."""

    owner: Owner
    letter: str
    colour: str
    mask: int

    @property
    def title(self) -> str:
        """Name and class; of the grey owners the name alone."""
        grey = self.owner.qos in _NEUTRAL
        return self.owner.name if grey else f"{self.owner.name}  {self.owner.qos}".rstrip()

    @property
    def text_colour(self) -> str:
        """Black or white, by relative luminance (WCAG 2.2), in doubt white."""
        red, green, blue = (_linear(int(self.colour[i : i + 2], 16) / 255) for i in (1, 3, 5))
        return "#000000" if 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.22 else "#ffffff"


def _linear(channel: float) -> float:
    return channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4


def legend(machine: Machine, owners: Mapping[int, Owner] | None) -> dict[Owner, LegendEntry]:
    """Return an entry for each owner of a CPU of this machine, by their lowest CPU, the grey ones last."""
    masks: dict[Owner, int] = {}
    for cpu, owner in sorted((owners or {}).items()):
        if machine.cpus_mask >> cpu & 1:
            masks[owner] = masks.get(owner, 0) | 1 << cpu
    coloured = [owner for owner in masks if owner.qos not in _NEUTRAL]
    grey = [owner for owner in masks if owner.qos in _NEUTRAL]
    entries = {owner: _entry(owner, index, masks[owner]) for index, owner in enumerate(coloured)}
    return entries | {owner: LegendEntry(owner, *_NEUTRAL[owner.qos], masks[owner]) for owner in grey}


def _entry(owner: Owner, index: int, mask: int) -> LegendEntry:
    letter = _LETTERS[index] if index < len(_LETTERS) else "#"
    return LegendEntry(
        owner, letter, _PALETTE[index] if index < len(_PALETTE) else _further_colour(index), mask
    )


def _further_colour(index: int) -> str:
    """Return hues a golden angle apart, which never repeat; three lightnesses separate successive ones."""
    channels = colorsys.hls_to_rgb(index * 0.618034 % 1, (0.42, 0.56, 0.7)[index % 3], 0.5)
    return "#" + "".join(f"{round(channel * 255):02x}" for channel in channels)
