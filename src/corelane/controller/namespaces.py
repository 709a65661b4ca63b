"""Ends namespaces: what is in a terminating one is deleted, and once it is empty it is finalized.

Upstream does this in its namespace controller; without it a deleted namespace stays Terminating for ever.
"""

from typing import Final

import msgspec

from corelane.kube.client import APIError, KubeClient
from corelane.kube.meta import Object
from corelane.kube.objects import KINDS, Namespace

_FINALIZER: Final = "kubernetes"
CONTENTS: Final[tuple[type[Object], ...]] = tuple(kind for kind in KINDS if kind.api.namespaced)
"""The kinds of which a namespace is emptied."""


def is_terminating(namespace: Namespace) -> bool:
    """Whether it is to go, and our finalizer still holds it."""
    return bool(namespace.metadata.deletion_timestamp) and _FINALIZER in namespace.spec.finalizers


async def end(client: KubeClient, namespace: Namespace) -> bool:
    """One step towards the end of a terminating namespace; true once it is finalized. Raises APIError."""
    name = namespace.metadata.name
    if [kind for kind in CONTENTS if await _holds(client, kind, name)]:
        for kind in CONTENTS:
            await client.raw("DELETE", kind.api.path(name))
        if [kind for kind in CONTENTS if await _holds(client, kind, name)]:
            return False
    await _finalize(client, namespace)
    return True


async def _holds(client: KubeClient, kind: type[Object], namespace: str) -> bool:
    listing = await client.list(kind, namespace=namespace, page=1)
    return bool(listing.items or listing.malformed)


async def _finalize(client: KubeClient, namespace: Namespace) -> None:
    """Take our finalizer away, which lets the server remove it. Gone already is as good."""
    left = [one for one in namespace.spec.finalizers if one != _FINALIZER]
    body = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": namespace.metadata.name, "uid": namespace.metadata.uid},
        "spec": {"finalizers": left},
    }
    path = Namespace.api.path(None, namespace.metadata.name, "finalize")
    try:
        await client.raw("PUT", path, body=msgspec.json.encode(body))
    except APIError as error:
        if error.code != 404:
            raise
