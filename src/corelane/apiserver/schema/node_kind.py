"""Nodes."""

from corelane.apiserver.schema.derived_defaults import node_allocatable, pod_cidrs
from corelane.apiserver.schema.notation import (
    BOOL,
    INT32,
    INT64,
    RESOURCE_LIST,
    STRING,
    TIME,
    ListType,
    filling,
    opt,
    record,
    req,
    val,
)
from corelane.apiserver.schema.object_meta import kind

TAINT = record(
    "Taint",
    "key @taint-value effect",
    key=req(STRING, 1, check="qualified-name!"),
    value=val(STRING, 2),
    effect=req(STRING, 3, check="required", enum="NoSchedule PreferNoSchedule NoExecute"),
    timeAdded=opt(TIME, 4),
)

CONFIG_MAP_NODE_CONFIG_SOURCE = record(
    "ConfigMapNodeConfigSource",
    namespace=req(STRING, 1),
    name=req(STRING, 2),
    uid=val(STRING, 3, go="UID"),
    resourceVersion=val(STRING, 4),
    kubeletConfigKey=req(STRING, 5),
)

NODE_CONFIG_SOURCE = record("NodeConfigSource", configMap=opt(CONFIG_MAP_NODE_CONFIG_SOURCE, 2))

NODE_SPEC = record(
    "NodeSpec",
    podCIDRs=val(ListType(STRING), 7, strategy="merge", list="set"),
    providerID=val(STRING, 3),
    unschedulable=val(BOOL, 4),
    taints=val(ListType(TAINT), 5),
    configSource=opt(NODE_CONFIG_SOURCE, 6),
    externalID=val(STRING, 2, go="DoNotUseExternalID"),
    podCIDR=val(STRING, 1),
)

NODE_CONDITION = record(
    "NodeCondition",
    type=req(STRING, 1),
    status=req(STRING, 2),
    lastHeartbeatTime=req(TIME, 3, optional=True),
    lastTransitionTime=req(TIME, 4, optional=True),
    reason=val(STRING, 5),
    message=val(STRING, 6),
)

NODE_ADDRESS = record("NodeAddress", type=req(STRING, 1), address=req(STRING, 2))

DAEMON_ENDPOINT = record("DaemonEndpoint", Port=req(INT32, 1))

NODE_DAEMON_ENDPOINTS = record("NodeDaemonEndpoints", kubeletEndpoint=req(DAEMON_ENDPOINT, 1, optional=True))

NODE_SWAP_STATUS = record("NodeSwapStatus", capacity=opt(INT64, 1))

NODE_SYSTEM_INFO = record(
    "NodeSystemInfo",
    machineID=req(STRING, 1),
    systemUUID=req(STRING, 2),
    bootID=req(STRING, 3),
    kernelVersion=req(STRING, 4),
    osImage=req(STRING, 5, go="OSImage"),
    containerRuntimeVersion=req(STRING, 6),
    kubeletVersion=req(STRING, 7),
    kubeProxyVersion=req(STRING, 8),
    operatingSystem=req(STRING, 9),
    architecture=req(STRING, 10),
    swap=opt(NODE_SWAP_STATUS, 11),
)

CONTAINER_IMAGE = record(
    "ContainerImage", names=req(ListType(STRING), 1, optional=True), sizeBytes=val(INT64, 2)
)

ATTACHED_VOLUME = record("AttachedVolume", name=req(STRING, 1), devicePath=req(STRING, 2))

NODE_CONFIG_STATUS = record(
    "NodeConfigStatus",
    assigned=opt(NODE_CONFIG_SOURCE, 1),
    active=opt(NODE_CONFIG_SOURCE, 2),
    lastKnownGood=opt(NODE_CONFIG_SOURCE, 3),
    error=val(STRING, 4),
)

NODE_RUNTIME_HANDLER_FEATURES = record(
    "NodeRuntimeHandlerFeatures", recursiveReadOnlyMounts=opt(BOOL, 1), userNamespaces=opt(BOOL, 2)
)

NODE_RUNTIME_HANDLER = record(
    "NodeRuntimeHandler", name=req(STRING, 1, optional=True), features=opt(NODE_RUNTIME_HANDLER_FEATURES, 2)
)

NODE_FEATURES = record("NodeFeatures", supplementalGroupsPolicy=opt(BOOL, 1))

NODE_STATUS = record(
    "NodeStatus",
    capacity=val(RESOURCE_LIST, 1),
    allocatable=val(RESOURCE_LIST, 2),
    phase=val(STRING, 3),
    conditions=val(ListType(NODE_CONDITION), 4, merge="type"),
    addresses=val(ListType(NODE_ADDRESS), 5, merge="type"),
    daemonEndpoints=req(NODE_DAEMON_ENDPOINTS, 6, optional=True),
    nodeInfo=req(NODE_SYSTEM_INFO, 7, optional=True),
    images=val(ListType(CONTAINER_IMAGE), 8),
    volumesInUse=val(ListType(STRING), 9),
    volumesAttached=val(ListType(ATTACHED_VOLUME), 10),
    config=opt(NODE_CONFIG_STATUS, 11),
    runtimeHandlers=val(ListType(NODE_RUNTIME_HANDLER), 12),
    features=opt(NODE_FEATURES, 13),
    declaredFeatures=val(ListType(STRING), 14),
)

NODE_SPEC = filling(NODE_SPEC, pod_cidrs)
NODE_STATUS = filling(NODE_STATUS, node_allocatable)

NODE = kind(
    "Node",
    "@taints @node-resources @swap @declared-features @pod-cidrs",
    spec=req(NODE_SPEC, 2, optional=True),
    status=req(NODE_STATUS, 3, optional=True),
)
