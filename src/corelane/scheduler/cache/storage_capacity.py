"""Free storage that CSI drivers publish, read once: each pod whose volume is to be made asks for it."""

from dataclasses import dataclass
from functools import lru_cache

from corelane import quantity
from corelane.kube.meta import WireQuantity
from corelane.kube.storage import CSIStorageCapacity
from corelane.quantity import QuantityError
from corelane.scheduler.cache.label_rules import Rules, rules_of


@dataclass(frozen=True, slots=True)
class Capacity:
    """The size of the largest volume that can be made, in bytes, and what the labels of its nodes must be.

    None where nothing is said of the size; where no node has access, or the selector is invalid.
    """

    largest: int | None
    rules: Rules | None

    @classmethod
    def of(cls, published: CSIStorageCapacity) -> "Capacity":
        try:
            rules = rules_of(published.node_topology)
        except ValueError:
            rules = None
        return cls(largest(published), rules)


def largest(published: CSIStorageCapacity) -> int | None:
    """Return the size of the largest volume that can be made, in bytes; None where nothing is said of it."""
    size = published.maximum_volume_size
    return amount(published.capacity if size is None else size)


@lru_cache(4096)
def amount(wire: WireQuantity | None) -> int | None:
    """Return bytes; None for an absent or invalid amount."""
    try:
        return None if wire is None else quantity.value(str(wire))
    except QuantityError:
        return None
