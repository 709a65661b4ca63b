"""NodeResourceTopology (topology.node.k8s.io), in its two versions.

Upstream it is a custom resource: its rows come from the structural schema of its CustomResourceDefinition,
its objects are stored as they were sent, and its faults read as kube-openapi's validator words them.
"""

from corelane.embedded.apiserver.schema.notation import Columns, record
from corelane.embedded.apiserver.schema.object_meta import kind

_NUMBER = r"(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
QUANTITY_PATTERN = rf"^(\+|-)?{_NUMBER}(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?{_NUMBER}))?$"
V1 = "io.k8s.node.topology.v1alpha1."
V2 = "io.k8s.node.topology.v1alpha2."

record("AttributeInfo", "name! value!", package=V2)
record("CostInfo", "name! value!:int64", package=V2)
record(
    "ResourceInfo",
    "allocatable!:int-or-string available!:int-or-string capacity!:int-or-string name!",
    package=V2,
    allocatable=Columns(pattern=QUANTITY_PATTERN),
    available=Columns(pattern=QUANTITY_PATTERN),
    capacity=Columns(pattern=QUANTITY_PATTERN),
)
record(
    "Zone",
    "attributes:[]AttributeInfo costs:[]CostInfo name! parent resources:[]ResourceInfo type!",
    package=V2,
)
V1ALPHA1 = kind(
    "NodeResourceTopology",
    "topologyPolicies!:[]string zones!:[]io.k8s.node.topology.v1alpha2.Zone",
    package=V1,
)
V1ALPHA2 = kind(
    "NodeResourceTopology", "attributes:[]AttributeInfo topologyPolicies:[]string zones!:[]Zone", package=V2
)
