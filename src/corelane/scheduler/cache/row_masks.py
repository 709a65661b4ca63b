"""Which nodes satisfy a condition on the Node object alone: masks by row, patched as nodes change."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from corelane.scheduler.cache.topology import Topology

_MOST: Final = 256


class RowMasks:
    """Masks by the key of their condition; rows without a Node object are False."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._masks: OrderedDict[Hashable, tuple[int, NDArray[np.bool_]]] = OrderedDict()

    def get(self, key: Hashable, holds: Callable[[int], bool]) -> NDArray[np.bool_]:
        """Return the mask of a condition, asked of each live row that changed; not to be changed."""
        topology = self._topology
        version, mask = self._masks.pop(key, (-1, np.zeros(0, np.bool_)))
        if len(mask) < topology.capacity:
            mask = np.concatenate([mask, np.zeros(topology.capacity - len(mask), np.bool_)])
        for row in topology.changed_since(version).tolist():
            mask[row] = bool(topology.live[row]) and holds(row)
        self._masks[key] = (topology.version, mask)
        if len(self._masks) > _MOST:
            self._masks.popitem(last=False)
        return mask
