"""Which revisions belong to the history that is kept, across starts of the server and loss of data.

Every start that writes begins at a number from the clock, far above all numbers before it. So a number is
never given to two states, whatever was lost in between: the file, its last writes in a power cut, or all
since the backup that was restored. A number between the last one kept and the first one of the next life
belongs to lost history, or to none: no watch can go on from there.
"""

from bisect import bisect_left
from collections.abc import Iterable
from typing import Final, NamedTuple

KEPT: Final = 1_000
"""Number of lives kept; history before them has expired."""

EXPIRED: Final = -1
"""Stands in `Life.after` where all history before a life has expired."""

_PER_SECOND: Final = 1_000_000
"""Numbers a second of the clock: more than a server writes, and below 2^53 until the year 2255."""
_GAP: Final = 1_000_000
"""Gap between two lives where the clock is behind: more numbers than a power cut loses."""


class Life(NamedTuple):
    """One start of the server: its revisions are above `base`, those before it end with `after`."""

    base: int
    after: int


def begin(last: int, begun: float) -> Life:
    """Return the life after revision `last` of a server that started at `begun`, in Unix seconds."""
    now = int(begun * _PER_SECOND)
    return Life(now if now > last else last + _GAP, last)


class Lives:
    """Lives of one file, oldest first."""

    def __init__(self, lives: Iterable[Life]) -> None:
        self._lives = list(lives)

    @property
    def start(self) -> int:
        """Revision at and before which all history has expired."""
        first = self._lives[0] if self._lives else Life(0, 0)
        return first.base if first.after == EXPIRED else 0

    def followed_by(self, life: Life) -> list[Life]:
        """Return the lives with a new one; the oldest expire."""
        first, *others = [*self._lives, life][-KEPT:]
        expired = len(self._lives) >= KEPT
        return [first._replace(after=EXPIRED) if expired else first, *others]

    def covers(self, revision: int) -> bool:
        """Whether a revision, not above the last one, belongs to history that was not lost."""
        following = bisect_left(self._lives, (revision,))
        return following == len(self._lives) or revision <= self._lives[following].after
