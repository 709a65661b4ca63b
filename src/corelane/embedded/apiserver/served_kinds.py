"""The kinds that are served: their names in paths and in discovery, and the table of each version."""

from collections.abc import Mapping
from dataclasses import dataclass

from corelane.embedded.apiserver.schema import kinds
from corelane.embedded.apiserver.schema.notation import ObjectType
from corelane.embedded.apiserver.schema.pod_kind import POD


@dataclass(frozen=True, slots=True)
class ServedKind:
    """One resource of one API group.

    `version` is the preferred one, `versions` all that are served, best first; `schema` has their tables.
    Resources that are two faces of one object (events) share `stored`, the name under which it is kept.
    `custom` marks what upstream serves from a CustomResourceDefinition.
    """

    group: str
    version: str
    versions: tuple[str, ...]
    kind: str
    plural: str
    singular: str
    short_names: tuple[str, ...]
    categories: tuple[str, ...]
    namespaced: bool
    subresources: tuple[str, ...]
    schema: Mapping[str, ObjectType]
    stored: str
    custom: bool = False

    def __hash__(self) -> int:
        return hash((self.group, self.plural))

    def api_version(self, version: str = "") -> str:
        """`v1`, `coordination.k8s.io/v1`; of the preferred version where none is given."""
        version = version or self.version
        return f"{self.group}/{version}" if self.group else version


def _kind(
    record: ObjectType,
    plural: str,
    *,
    group: str = "",
    short: str = "",
    categories: tuple[str, ...] = (),
    namespaced: bool = True,
    subresources: tuple[str, ...] = (),
    stored: str = "",
    schema: Mapping[str, ObjectType] | None = None,
    custom: bool = False,
) -> ServedKind:
    schema = schema or {"v1": record}
    versions = tuple(schema)
    return ServedKind(
        group=group,
        version=versions[0],
        versions=versions,
        kind=record.name,
        plural=plural,
        singular=record.name.lower(),
        short_names=(short,) if short else (),
        categories=categories,
        namespaced=namespaced,
        subresources=subresources,
        schema=schema,
        stored=stored or (f"{plural}.{group}" if group else plural),
        custom=custom,
    )


NAMESPACES = _kind(
    kinds.NAMESPACE, "namespaces", short="ns", namespaced=False, subresources=("finalize", "status")
)
NODES = _kind(kinds.NODE, "nodes", short="no", namespaced=False, subresources=("status",))
PODS = _kind(
    POD, "pods", short="po", categories=("all",), subresources=("binding", "eviction", "log", "status")
)
CONFIG_MAPS = _kind(kinds.CONFIG_MAP, "configmaps", short="cm")
SECRETS = _kind(kinds.SECRET, "secrets")
EVENTS = _kind(kinds.EVENT, "events", short="ev")
NEW_EVENTS = _kind(kinds.NEW_EVENT, "events", group="events.k8s.io", short="ev", stored="events")
LEASES = _kind(kinds.LEASE, "leases", group="coordination.k8s.io")
PRIORITY_CLASSES = _kind(
    kinds.PRIORITY_CLASS, "priorityclasses", group="scheduling.k8s.io", short="pc", namespaced=False
)
BUDGETS = _kind(
    kinds.POD_DISRUPTION_BUDGET, "poddisruptionbudgets", group="policy", short="pdb", subresources=("status",)
)
TOPOLOGIES = _kind(
    kinds.TOPOLOGY_V1ALPHA2,
    "noderesourcetopologies",
    group="topology.node.k8s.io",
    short="node-res-topo",
    namespaced=False,
    schema={"v1alpha2": kinds.TOPOLOGY_V1ALPHA2, "v1alpha1": kinds.TOPOLOGY_V1ALPHA1},
    custom=True,
)

KINDS: tuple[ServedKind, ...] = (
    NAMESPACES,
    NODES,
    PODS,
    CONFIG_MAPS,
    SECRETS,
    EVENTS,
    NEW_EVENTS,
    LEASES,
    PRIORITY_CLASSES,
    BUDGETS,
    TOPOLOGIES,
)

# What is only ever sent to a subresource: decoded by the same tables, but not stored.
BINDINGS = _kind(kinds.BINDING, "bindings")
EVICTIONS = _kind(kinds.EVICTION, "evictions", group="policy")

# What is answered at once and not stored.
REVIEWS: tuple[ServedKind, ...] = (
    _kind(kinds.SELF_SUBJECT_REVIEW, "selfsubjectreviews", group="authentication.k8s.io", namespaced=False),
    _kind(kinds.TOKEN_REVIEW, "tokenreviews", group="authentication.k8s.io", namespaced=False),
    _kind(kinds.ACCESS_REVIEW, "selfsubjectaccessreviews", group="authorization.k8s.io", namespaced=False),
    _kind(kinds.RULES_REVIEW, "selfsubjectrulesreviews", group="authorization.k8s.io", namespaced=False),
)

_BY_PATH = {
    (kind.group, version, kind.plural): kind for kind in (*KINDS, *REVIEWS) for version in kind.versions
}


def by_path(group: str, version: str, plural: str) -> ServedKind | None:
    """The kind that a path names, or None where it names nothing that is served."""
    return _BY_PATH.get((group, version, plural))


def by_stored(stored: str) -> ServedKind | None:
    """Return the kind that owns a stored form (for events: the one of the core group).

    None for a kind that only an earlier version served.
    """
    return next((kind for kind in KINDS if kind.stored == stored), None)
