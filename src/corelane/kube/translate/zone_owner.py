"""The program that writes the zones of a NodeResourceTopology, a list that two writers overwrite in turn."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from corelane.kube import keys

FIELD_MANAGER: Final = "corelane-agent"
"""The name under which the API server records the fields that the agent writes."""
_EARLIER: Final = "python-httpx"
"""How the names begin that the API server gave releases of the agent without a name of their own."""
_KUBECTL: Final = "kubectl"
CONTENT: Final = ("zones", "topologyPolicies", "attributes")
"""Members of the object that only the owner of the zones writes."""


def zone_owner(stored: Mapping[str, Any]) -> str:
    """Return another program that owns the zones of an object on the API server; "" where none does.

    The owner is the last writer by `managedFields` but kubectl: a person's edit is no exporter, and does not
    last. A server that keeps none leaves the label
    `app.kubernetes.io/managed-by`, which must then name corelane, or nothing.
    """
    metadata = stored.get("metadata") or {}
    fields = metadata.get("managedFields")
    if fields:
        writers = sorted(_zone_writers(fields))
        return "" if not writers or is_own(writers[-1][1]) else writers[-1][1]
    label = str((metadata.get("labels") or {}).get(keys.MANAGED_BY) or "")
    return "" if label == "corelane" else label


def is_own(manager: str) -> bool:
    return manager == FIELD_MANAGER or manager.startswith(_EARLIER)


def _zone_writers(fields: Any) -> Iterator[tuple[str, str]]:
    """Yield time and manager of each writer of the zones."""
    for entry in fields if isinstance(fields, list) else ():
        if isinstance(entry, dict) and "f:zones" in (entry.get("fieldsV1") or {}):
            manager = str(entry.get("manager") or "")
            if manager != _KUBECTL and not manager.startswith(f"{_KUBECTL}-"):
                yield str(entry.get("time") or ""), manager


def without_zones(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object of `topology` without what the owner of the zones writes."""
    metadata = {name: part for name, part in body["metadata"].items() if name != "labels"}
    return {name: part for name, part in body.items() if name not in CONTENT} | {"metadata": metadata}
