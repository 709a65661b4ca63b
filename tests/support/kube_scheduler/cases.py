"""Random clusters with one pod to place, as plain Kubernetes objects: the questions of the recorded answers.

`python -m support.kube_scheduler.cases SEED COUNT` prints COUNT cases of each family, one a line; the same
seed gives the same cases.
"""

import json
import sys
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, Final

from support.kube_scheduler import objects, pods, preemption, volumes

Object = dict[str, Any]
Case = dict[str, Any]

_MAKERS: Final[dict[str, Callable[[Random], Case]]] = {
    "node_affinity": pods.node_affinity,
    "taints": pods.taints,
    "resources": pods.resources,
    "ports": pods.ports,
    "inter_pod_affinity": pods.inter_pod_affinity,
    "topology_spread": pods.topology_spread,
    "images": pods.images,
    "volumes": volumes.case,
    "mixed": pods.mixed,
    "preemption": preemption.case,
}
FAMILIES: Final = tuple(_MAKERS)
"""Each family looks at few plugins closely; `mixed` looks at all at once."""


def cases(seed: int, count: int) -> Iterator[Case]:
    """Yield `count` cases of each family."""
    for family in FAMILIES:
        for number in range(count):
            random = Random(f"{seed}/{family}/{number}")
            case = {"name": f"{family}[{number}]", "family": family} | _MAKERS[family](random)
            yield objects.without_empty(case)


if __name__ == "__main__":
    for one in cases(int(sys.argv[1]), int(sys.argv[2])):
        print(json.dumps(one, separators=(",", ":")))
