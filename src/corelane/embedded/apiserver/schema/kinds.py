"""Kinds other than pods."""

from corelane.embedded.apiserver.schema.defaults_and_formats import (
    namespace_label,
    node_allocatable,
    pod_cidrs,
)
from corelane.embedded.apiserver.schema.notation import META, Columns, kind, record

COORDINATION = "io.k8s.api.coordination.v1."

record("NamespaceSpec", "finalizers:[]string=1")

record("NamespaceCondition", "type!=1 status!=2 lastTransitionTime+:time=4 reason=5 message=6")

record(
    "NamespaceStatus",
    "phase=1 conditions:[]NamespaceCondition=2",
    phase=Columns(default="Active"),
    conditions=Columns(merge="type"),
)

NAMESPACE = kind(
    "Namespace",
    "spec+:NamespaceSpec=2 status+:NamespaceStatus=3",
    rules="finalizers",
    defaults=(namespace_label,),
)

CONFIG_MAP = kind(
    "ConfigMap",
    "immutable?:bool=4 data:{}string=2|config-key binaryData:{}bytes=3|config-key",
    rules="config-data",
)

SECRET = kind(
    "Secret",
    "immutable?:bool=5 data:{}bytes=2|config-key stringData:{}string=4 type=3",
    rules="secret-data",
    type=Columns(default="Opaque"),
)

record(
    "LeaseSpec",
    "holderIdentity?=1 leaseDurationSeconds?:int32=2|1.. acquireTime?:microtime=3 "
    "renewTime?:microtime=4 leaseTransitions?:int32=5|0.. strategy?=6 preferredHolder?=7",
    package=COORDINATION,
    strategy=Columns(gated=True),
    preferredHolder=Columns(gated=True),
)

LEASE = kind("Lease", "spec+:LeaseSpec=2", package=COORDINATION)

PRIORITY_CLASS = kind(
    "PriorityClass",
    "value+:int32=2 globalDefault:bool=3 description=4 preemptionPolicy?=5",
    rules="priority-value",
    package="io.k8s.api.scheduling.v1.",
    preemptionPolicy=Columns(default="PreemptLowerPriority", enum="PreemptLowerPriority Never"),
)

record(
    "ObjectReference",
    "kind=1 namespace=2 name=3 uid=4 apiVersion=5 resourceVersion=6 fieldPath=7",
    atomic=True,
)

BINDING = kind("Binding", "target!:ObjectReference=2")

EVICTION = kind("Eviction", "deleteOptions?:DeleteOptions=2", package="io.k8s.api.policy.v1.")


# --- disruption budgets

POLICY = "io.k8s.api.policy.v1."

record(
    "Condition",
    "type!=1|qualified-name! status!=2 observedGeneration:int64=3|0.. lastTransitionTime!:time=4|required "
    "reason!=5|required|reason|len<=1024 message!=6|len<=32768",
    status=Columns(enum="False True Unknown"),
    package=META,
)

record(
    "PodDisruptionBudgetSpec",
    "minAvailable?:int-or-string=1|count-or-percentage selector?:LabelSelector=2 "
    "maxUnavailable?:int-or-string=3|count-or-percentage "
    "unhealthyPodEvictionPolicy?=4",
    rules="one-number",
    package=POLICY,
    selector=Columns(strategy="replace"),
    unhealthyPodEvictionPolicy=Columns(enum="AlwaysAllow IfHealthyBudget"),
)

record(
    "PodDisruptionBudgetStatus",
    "observedGeneration:int64=1 disruptedPods:{}time=2 disruptionsAllowed+:int32=3|0.. "
    "currentHealthy+:int32=4|0.. desiredHealthy+:int32=5|0.. expectedPods+:int32=6|0.. "
    "conditions:[]Condition=7",
    package=POLICY,
    conditions=Columns(merge="type"),
)

POD_DISRUPTION_BUDGET = kind(
    "PodDisruptionBudget",
    "spec+:PodDisruptionBudgetSpec=2 status+:PodDisruptionBudgetStatus=3",
    status=Columns(walked=False),
    package=POLICY,
)


# --- events, in the two groups that show one stored object

EVENTS_V1 = "io.k8s.api.events.v1."

record("EventSource", "component=1 host=2")

record("EventSeries", "count:int32=1 lastObservedTime+:microtime=2")
record("EventSeries", "count!:int32=1 lastObservedTime!:microtime=2", package=EVENTS_V1)

EVENT = kind(
    "Event",
    "involvedObject!:ObjectReference=2 reason=3 message=4 source+:EventSource=5 firstTimestamp+:time=6 "
    "lastTimestamp+:time=7 count:int32=8 type=9 eventTime+:microtime=10 series?:EventSeries=11 action=12 "
    "related?:ObjectReference=13 reportingComponent+=14 reportingInstance+=15",
)

NEW_EVENT = kind(
    "Event",
    "eventTime!:microtime=2 series?:EventSeries=3 reportingController=4 reportingInstance=5 action=6 "
    "reason=7 regarding+:ObjectReference=8 related?:ObjectReference=9 note=10 type=11 "
    "deprecatedSource+:EventSource=12 deprecatedFirstTimestamp+:time=13 deprecatedLastTimestamp+:time=14 "
    "deprecatedCount:int32=15",
    package=EVENTS_V1,
)


# --- nodes

record(
    "Taint",
    "key!=1|qualified-name! value=2|label-value effect!=3|required timeAdded?:time=4",
    effect=Columns(enum="NoSchedule PreferNoSchedule NoExecute"),
)

record("ConfigMapNodeConfigSource", "namespace!=1 name!=2 uid=3 resourceVersion=4 kubeletConfigKey!=5")

record("NodeConfigSource", "configMap?:ConfigMapNodeConfigSource=2")

record(
    "NodeSpec",
    "podCIDRs:[]string=7 providerID=3 unschedulable:bool=4 taints:[]Taint=5 "
    "configSource?:NodeConfigSource=6 externalID=2 podCIDR=1",
    defaults=(pod_cidrs,),
    podCIDRs=Columns(strategy="merge", list="set"),
    taints=Columns(walked=False),
)

record(
    "NodeCondition",
    "type!=1 status!=2 lastHeartbeatTime+:time=3 lastTransitionTime+:time=4 reason=5 message=6",
)

record("NodeAddress", "type!=1 address!=2")

record("DaemonEndpoint", "Port!:int32=1")

record("NodeDaemonEndpoints", "kubeletEndpoint+:DaemonEndpoint=1")

record("NodeSwapStatus", "capacity?:int64=1")

record(
    "NodeSystemInfo",
    "machineID!=1 systemUUID!=2 bootID!=3 kernelVersion!=4 osImage!=5 containerRuntimeVersion!=6 "
    "kubeletVersion!=7 kubeProxyVersion!=8 operatingSystem!=9 architecture!=10 swap?:NodeSwapStatus=11",
)

record("ContainerImage", "names+:[]string=1 sizeBytes:int64=2")

record("AttachedVolume", "name!=1 devicePath!=2")

record(
    "NodeConfigStatus",
    "assigned?:NodeConfigSource=1 active?:NodeConfigSource=2 lastKnownGood?:NodeConfigSource=3 error=4",
)

record("NodeRuntimeHandlerFeatures", "recursiveReadOnlyMounts?:bool=1 userNamespaces?:bool=2")

record("NodeRuntimeHandler", "name+=1 features?:NodeRuntimeHandlerFeatures=2")

record("NodeFeatures", "supplementalGroupsPolicy?:bool=1")

record(
    "NodeStatus",
    "capacity:{}amount=1 allocatable:{}amount=2 phase=3 conditions:[]NodeCondition=4 "
    "addresses:[]NodeAddress=5 daemonEndpoints+:NodeDaemonEndpoints=6 nodeInfo+:NodeSystemInfo=7 "
    "images:[]ContainerImage=8 volumesInUse:[]string=9 volumesAttached:[]AttachedVolume=10 "
    "config?:NodeConfigStatus=11 runtimeHandlers:[]NodeRuntimeHandler=12 features?:NodeFeatures=13 "
    "declaredFeatures:[]string=14",
    defaults=(node_allocatable,),
    conditions=Columns(merge="type"),
    addresses=Columns(merge="type"),
)


NODE = kind(
    "Node",
    "spec+:NodeSpec=2 status+:NodeStatus=3",
    rules="taints node-resources",
)


# --- reviews: questions about the caller or a token, answered at once and not stored

AUTHENTICATION = "io.k8s.api.authentication.v1."
AUTHORIZATION = "io.k8s.api.authorization.v1."

record("UserInfo", "username=1 uid=2 groups:[]string=3", package=AUTHENTICATION)
record("SelfSubjectReviewStatus", "userInfo+:UserInfo=1", package=AUTHENTICATION)
SELF_SUBJECT_REVIEW = kind("SelfSubjectReview", "status+:SelfSubjectReviewStatus=2", package=AUTHENTICATION)

record("TokenReviewSpec", "token=1 audiences:[]string=2", package=AUTHENTICATION)
record(
    "TokenReviewStatus",
    "authenticated:bool=1 user+:UserInfo=2 audiences:[]string=4 error=3",
    package=AUTHENTICATION,
)
TOKEN_REVIEW = kind(
    "TokenReview", "spec!:TokenReviewSpec=2 status+:TokenReviewStatus=3", package=AUTHENTICATION
)

record("FieldSelectorRequirement", "key!=1 operator!=2 values:[]string=3", package=META)
record(
    "FieldSelectorAttributes",
    "rawSelector=1 requirements:[]FieldSelectorRequirement=2",
    package=AUTHORIZATION,
)
record(
    "LabelSelectorAttributes",
    "rawSelector=1 requirements:[]LabelSelectorRequirement=2",
    package=AUTHORIZATION,
)
record(
    "ResourceAttributes",
    "namespace=1 verb=2 group=3 version=4 resource=5 subresource=6 name=7 "
    "fieldSelector?:FieldSelectorAttributes=8 labelSelector?:LabelSelectorAttributes=9",
    package=AUTHORIZATION,
)
record("NonResourceAttributes", "path=1 verb=2", package=AUTHORIZATION)
record(
    "SelfSubjectAccessReviewSpec",
    "resourceAttributes?:ResourceAttributes=1 nonResourceAttributes?:NonResourceAttributes=2",
    package=AUTHORIZATION,
)
record(
    "SubjectAccessReviewStatus",
    "allowed!:bool=1 denied:bool=4 reason=2 evaluationError=3",
    package=AUTHORIZATION,
)
ACCESS_REVIEW = kind(
    "SelfSubjectAccessReview",
    "spec+:SelfSubjectAccessReviewSpec=2 status+:SubjectAccessReviewStatus=3",
    package=AUTHORIZATION,
)

record("SelfSubjectRulesReviewSpec", "namespace=1", package=AUTHORIZATION)
record(
    "ResourceRule",
    "verbs!:[]string=1 apiGroups:[]string=2 resources:[]string=3 resourceNames:[]string=4",
    package=AUTHORIZATION,
)
record("NonResourceRule", "verbs!:[]string=1 nonResourceURLs:[]string=2", package=AUTHORIZATION)
record(
    "SubjectRulesReviewStatus",
    "resourceRules!:[]ResourceRule=1 nonResourceRules!:[]NonResourceRule=2 incomplete!:bool=3 "
    "evaluationError=4",
    package=AUTHORIZATION,
)
RULES_REVIEW = kind(
    "SelfSubjectRulesReview",
    "spec+:SelfSubjectRulesReviewSpec=2 status+:SubjectRulesReviewStatus=3",
    package=AUTHORIZATION,
)


# --- NodeResourceTopology: upstream a custom resource, whose objects are stored as they were sent

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
TOPOLOGY_V1ALPHA1 = kind(
    "NodeResourceTopology",
    "topologyPolicies!:[]string zones!:[]io.k8s.node.topology.v1alpha2.Zone",
    package=V1,
)
TOPOLOGY_V1ALPHA2 = kind(
    "NodeResourceTopology", "attributes:[]AttributeInfo topologyPolicies:[]string zones!:[]Zone", package=V2
)
