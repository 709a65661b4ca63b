"""Which nodes have which container images, from `Node.status.images`."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from corelane.kube.objects import ContainerImage

_DENSE_FROM = 64


class _Holders:
    """The nodes that list an image under the same names: sizes in bytes by row."""

    __slots__ = ("count", "few", "many")

    def __init__(self) -> None:
        self.count = 0
        self.few: dict[int, int] = {}
        self.many: NDArray[np.float64] | None = None

    def put(self, row: int, size: int) -> None:
        """Set the size on a node that did not list the image before."""
        self.count += 1
        if self.many is None and len(self.few) < _DENSE_FROM:
            self.few[row] = size
            return
        self.many = self.dense(row + 1)
        self.many[row] = size
        self.few = {}

    def drop(self, row: int) -> None:
        self.count -= 1
        if self.many is None:
            self.few.pop(row, None)
        else:
            self.many[row] = 0

    def dense(self, rows: int) -> NDArray[np.float64]:
        """Return sizes for at least that many rows, 0 where the image is absent."""
        if self.many is not None and len(self.many) >= rows:
            return self.many
        dense = np.zeros(max(rows, max(self.few, default=0) + 1))
        if self.many is not None:
            dense = np.zeros(2 * rows)
            dense[: len(self.many)] = self.many
        for row, size in self.few.items():
            dense[row] = size
        return dense


class ImageIndex:
    """Sizes of images by name and row."""

    def __init__(self) -> None:
        self._of_row: dict[int, tuple[ContainerImage, ...]] = {}
        self._images: dict[tuple[str, ...], _Holders] = {}
        self._by_name: dict[str, list[_Holders]] = {}

    def __len__(self) -> int:
        return len(self._by_name)

    def put(self, row: int, images: tuple[ContainerImage, ...]) -> None:
        """Set the images of a node."""
        old = self._of_row.get(row, ())
        if old == images:
            return
        for image in old:
            self._drop(row, image)
        for image in images:
            self._put(row, image)
        if images:
            self._of_row[row] = images
        else:
            self._of_row.pop(row, None)

    def _put(self, row: int, image: ContainerImage) -> None:
        holders = self._images.get(image.names)
        if holders is None:
            holders = self._images[image.names] = _Holders()
            for name in image.names:
                self._by_name.setdefault(name, []).append(holders)
        holders.put(row, image.size_bytes)

    def _drop(self, row: int, image: ContainerImage) -> None:
        holders = self._images[image.names]
        holders.drop(row)
        if holders.count:
            return
        del self._images[image.names]
        for name in image.names:
            self._by_name[name] = [one for one in self._by_name[name] if one is not holders]
            if not self._by_name[name]:
                del self._by_name[name]

    def known(self, name: str) -> bool:
        """Return whether some node has the image."""
        return name in self._by_name

    def nodes(self, name: str) -> int:
        """Return how many nodes have the image."""
        return sum(holders.count for holders in self._held(name))

    def sizes(self, name: str, capacity: int) -> NDArray[np.float64]:
        """Return the image's size on each row, 0 where it is absent."""
        total = np.zeros(capacity)
        for holders in self._held(name):
            dense = holders.dense(capacity)[:capacity]
            total[: len(dense)] += dense
        return total

    def _held(self, name: str) -> Iterator[_Holders]:
        return iter(self._by_name.get(name, ()))
