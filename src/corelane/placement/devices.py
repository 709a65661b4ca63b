"""NUMA hints for devices, as the kubelet's device manager gives them to its topology manager.

Upstream: `pkg/kubelet/cm/devicemanager/topology_hints.go` (v1.36). A device is the mask of the ids of the
NUMA nodes that it is near to, 0 where nothing is known.
"""

from collections import Counter
from collections.abc import Sequence

from corelane.cpuset import bits
from corelane.placement import families
from corelane.placement.families import Family

__all__ = ["device_hints"]


def device_hints(
    devices: Sequence[int],
    free: Sequence[int],
    n: int,
    nodes: int,
    *,
    reusable: Sequence[int] = (),
    narrow: bool = False,
) -> Family | None:
    """The sets of nodes to which n of the `free` devices are near; preferred are the smallest of all.

    `devices` are all of the resource, used or not: by them the smallest possible size is judged. `nodes` is
    the mask of all ids of the machine. `reusable` devices, of the pod's init containers, must be near too.
    With `narrow`, as from 1.37 (kubernetes#138244), sets have no node but those that some device is near.
    None, no preference, when nothing is known of any device; an empty family when there are too few. Raises
    TooManyNodes beyond 16 nodes.
    """
    if not any(device & nodes for device in devices):
        return None
    ids = list(bits(nodes))
    count = len(ids)
    if len(free) + len(reusable) < n:
        return families.preferring(count, bytes(1 << count), count)
    known = [device for device in reusable if device]
    sets = _near(ids, free, n - len(known))
    for device in known:
        sets = families.both(sets, families.touching(count, _positions(ids, device)))
    if narrow:
        sets = families.both(sets, *_without_deviceless(ids, devices))
    possible = b"\0" + _near(ids, devices, n)[1:]
    return families.preferring(count, b"\0" + sets[1:], families.smallest(count, possible))


def _without_deviceless(ids: Sequence[int], devices: Sequence[int]) -> list[bytes]:
    """For each node that no device is near, the family of all sets without it."""
    near = 0
    for device in devices:
        near |= device
    return [
        families.without_and_with(len(ids), position)[0]
        for position, node in enumerate(ids)
        if not near >> node & 1
    ]


def _near(ids: Sequence[int], devices: Sequence[int], n: int) -> bytes:
    """The sets of nodes to which at least n of the devices are near."""
    at = Counter(_positions(ids, device) for device in devices)
    single = [at.pop(1 << i, 0) for i in range(len(ids))]
    at.pop(0, None)
    if not at:
        return families.covering(single, n)
    near = families.sums(single)
    for places, many in at.items():
        near = [one + many if i & places else one for i, one in enumerate(near)]
    return bytes(map(n.__le__, near))


def _positions(ids: Sequence[int], nodes: int) -> int:
    return sum(1 << i for i, node in enumerate(ids) if nodes >> node & 1)
