"""ImageLocality: nodes that have a pod's images already, weighted by size and by how many nodes have them."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import numpy as np

from corelane.kube.pod import Pod
from corelane.scheduler.cluster.columns import Columns, Rows, Scores
from corelane.scheduler.cluster.node_info import NodeInfo
from corelane.scheduler.framework.plugin import BEST, SKIP, Cycle, Scope, Skip

_LEAST: Final = 23 << 20
_MOST_OF_CONTAINER: Final = 1000 << 20
"""Sizes in bytes: less is worth nothing, more is worth no more."""


class ImageLocality:
    """Scores nodes by the images that they need not pull."""

    name = "ImageLocality"
    scope = Scope.CLUSTER

    def pre_score(self, cycle: Cycle, nodes: Sequence[NodeInfo]) -> Skip | None:
        if not cycle.cluster.images:
            return SKIP
        known = cycle.cluster.images.known
        for name in _images(cycle.pod.pod):
            if known(name):
                return None
        return SKIP

    def score(self, cycle: Cycle, node: NodeInfo) -> float:
        return float(self._of(cycle, np.array([node.row], np.intp))[0])

    def scores(self, cycle: Cycle, columns: Columns, rows: Rows) -> Scores:
        return self._of(cycle, rows)

    @staticmethod
    def _of(cycle: Cycle, rows: Rows) -> Scores:
        cluster, pod = cycle.cluster, cycle.pod.pod
        total = int(cluster.topology.live.sum())
        sums = np.zeros(len(rows))
        for name in _images(pod):
            if cluster.images.known(name):
                spread = cluster.images.nodes(name) / total
                sums += np.floor(cluster.images.sizes(name, cluster.topology.capacity)[rows] * spread)
        most = _MOST_OF_CONTAINER * (len(pod.spec.containers) + len(pod.spec.init_containers))
        return np.floor(BEST * (np.clip(sums, _LEAST, most) - _LEAST) / (most - _LEAST))


def _images(pod: Pod) -> list[str]:
    spec = pod.spec
    names = [normalized(one.image) for one in spec.init_containers]
    names += [normalized(one.image) for one in spec.containers]
    names += [normalized(one.image.reference) for one in spec.volumes if one.image is not None]
    return names


@lru_cache(4096)
def normalized(image: str) -> str:
    """Return an image's name with its tag, `latest` by default."""
    return image if image.rfind(":") > image.rfind("/") else f"{image}:latest"
