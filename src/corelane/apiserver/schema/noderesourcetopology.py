"""NodeResourceTopology (topology.node.k8s.io), in its two versions.

Upstream it is a custom resource: its rows come from the structural schema of its CustomResourceDefinition,
its objects are stored as they were sent, and its faults read as kube-openapi's validator words them.
"""

from corelane.apiserver.schema.notation import INT64, INT_OR_STRING, STRING, ListType, record, req, val
from corelane.apiserver.schema.object_meta import kind

_NUMBER = r"(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
QUANTITY_PATTERN = rf"^(\+|-)?{_NUMBER}(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?{_NUMBER}))?$"
V1 = "io.k8s.node.topology.v1alpha1."
V2 = "io.k8s.node.topology.v1alpha2."

ATTRIBUTE = record("AttributeInfo", "", V2, name=req(STRING), value=req(STRING))
COST = record("CostInfo", "", V2, name=req(STRING), value=req(INT64))
RESOURCE = record(
    "ResourceInfo",
    "",
    V2,
    allocatable=req(INT_OR_STRING, pattern=QUANTITY_PATTERN),
    available=req(INT_OR_STRING, pattern=QUANTITY_PATTERN),
    capacity=req(INT_OR_STRING, pattern=QUANTITY_PATTERN),
    name=req(STRING),
)
ZONE = record(
    "Zone",
    "",
    V2,
    attributes=val(ListType(ATTRIBUTE)),
    costs=val(ListType(COST)),
    name=req(STRING),
    parent=val(STRING),
    resources=val(ListType(RESOURCE)),
    type=req(STRING),
)
V1ALPHA1 = kind(
    "NodeResourceTopology", "", V1, topologyPolicies=req(ListType(STRING)), zones=req(ListType(ZONE))
)
V1ALPHA2 = kind(
    "NodeResourceTopology",
    "",
    V2,
    attributes=val(ListType(ATTRIBUTE)),
    topologyPolicies=val(ListType(STRING)),
    zones=req(ListType(ZONE)),
)
