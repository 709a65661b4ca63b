"""The kubelet's answer to /pods, decoded pod by pod and only where it changed.

The kubelet lists its pods in random order and has no resourceVersion of the list, so every item is compared
by a digest of its bytes: a pod that did not change is the same object as before.
"""

from collections.abc import Iterable
from hashlib import blake2b
from typing import Generic, TypeVar

from msgspec import Raw

from corelane.kube.decode import Listing, Malformed, decode_object, split_list
from corelane.kube.meta import Object

T = TypeVar("T", bound=Object)


def _digest(data: bytes | Raw) -> bytes:
    return blake2b(data, digest_size=16).digest()


class PodList(Generic[T]):
    """The last list that was read."""

    def __init__(self, kind: type[T]) -> None:
        self._kind = kind
        self._body = b""
        self._decoded: dict[bytes, T | Malformed] = {}
        self._listing: Listing[T] = Listing((), "")

    def read(self, body: bytes) -> Listing[T]:
        """Decode a list, pods by namespace and name; while nothing changes, return the same object again.

        A malformed pod is named in the result and spoils no other. Raises ValueError for a body
        that is not a list of objects; the last list then stays.
        """
        if (digest := _digest(body)) == self._body:
            return self._listing
        items = {_digest(raw): raw for raw in split_list(body)[1]}
        if items.keys() != self._decoded.keys() or not self._body:
            decoded = {key: self._decoded.get(key) or decode_object(self._kind, items[key]) for key in items}
            self._decoded, self._listing = decoded, _listing(decoded.values())
        self._body = digest
        return self._listing


def _listing(decoded: Iterable[T | Malformed]) -> Listing[T]:
    read = list(decoded)
    pods = [item for item in read if not isinstance(item, Malformed)]
    malformed = [item for item in read if isinstance(item, Malformed)]
    return Listing(tuple(sorted(pods, key=_order)), "", tuple(sorted(malformed, key=str)))


def _order(pod: Object) -> tuple[str, str, str]:
    return (*pod.key, pod.metadata.uid)
