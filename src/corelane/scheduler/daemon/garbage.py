"""The garbage collector of the scheduler's process: it walks young objects only, never what was listed.

A full collection walks every object: 270 ms while 50,000 pods are listed. What is listed lives until it is
replaced, and goes by its reference counts. So it is frozen once a list is complete, and until then only
young objects are collected: about 40,000 at once, 10 ms.

The collector counts objects made less objects freed. Where each new object replaces one, as on updates, it
is never due, and then walks all of them at once: 150 ms after 5,000 topologies. So events count as well.
"""

import gc
from typing import Final

_THRESHOLDS: Final = (10_000, 3, 5000)
"""Net allocations until the youngest objects are collected; how often until those with the next older ones;
how often these until all."""

_EVENTS: Final = 256
"""Events after which the youngest objects are collected, of about 10 objects each, and 50 of a topology."""


class YoungObjects:
    """The objects that events leave behind: collected before they are many, in some 100 µs."""

    def __init__(self) -> None:
        self._left = _EVENTS

    def event_handled(self) -> None:
        """Take note of an event, after which some objects are older."""
        self._left -= 1
        if not self._left:
            self._left = _EVENTS
            gc.collect(0)


def collect_young() -> None:
    """Collect young objects often, and all of them seldom; called before anything is listed."""
    gc.set_threshold(*_THRESHOLDS)


def settle() -> None:
    """Keep the collector from everything that exists now; called whenever a list is complete."""
    gc.collect(1)
    gc.freeze()


def release() -> None:
    """Collect what was kept from the collector; called when a scheduler has ended."""
    gc.unfreeze()
    gc.collect()
