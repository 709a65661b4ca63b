"""Terms 5 to 9 of the objective packed into one whole number: comparing two numbers compares term by term.

A field per term that is in play, the earlier above the later; scores add up over cores, domains and nodes.
"""

from dataclasses import dataclass, field
from typing import Final

__all__ = ["SHAPE_BITS", "Layout", "layout"]

_WIDTHS: Final = {"domains": 16, "bind": 16, "exclusive": 16, "fallback": 16, "affinity": 20, "strategy": 40}
SHAPE_BITS: Final = 24


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """What one unit of each term weighs in a score, 0 where the term is not in play; term 9 weighs 1."""

    domains: int
    bind: int
    exclusive: int = 0
    fallback: int = 0
    affinity: int = 0
    strategy: int = 0
    shift: int = field(init=False)
    """By how many bits the number of domains, the highest field, is shifted."""
    _fields: tuple[tuple[int, int], ...] = field(init=False)
    """Of each field, how far to shift a score, and what to mask it with."""

    def __post_init__(self) -> None:
        weights = [(getattr(self, name), width) for name, width in _WIDTHS.items()]
        fields = [
            (max(weight.bit_length() - 1, 0), (1 << width) - 1 if weight else 0) for weight, width in weights
        ]
        object.__setattr__(self, "shift", self.domains.bit_length() - 1)
        object.__setattr__(self, "_fields", (*fields, (0, (1 << SHAPE_BITS) - 1)))

    def unpack(self, score: int) -> list[int]:
        """The value of every field, in the order above, 0 where it is not in play; that of term 9 is last."""
        return [score >> shift & mask for shift, mask in self._fields]


def layout(*, exclusive: bool, affinity: bool, strategy: bool) -> Layout:
    """Fields for what is asked; the fewer, the faster the arithmetic."""
    played = {"exclusive": exclusive, "fallback": exclusive, "affinity": affinity, "strategy": strategy}
    weights, shift = {}, SHAPE_BITS
    for name in reversed(_WIDTHS):
        if played.get(name, True):
            weights[name] = 1 << shift
            shift += _WIDTHS[name]
    return Layout(**weights)
