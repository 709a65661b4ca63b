"""Nodes."""

from corelane.apiserver.schema.derived_defaults import node_allocatable, pod_cidrs
from corelane.apiserver.schema.notation import (
    BOOL,
    INT32,
    INT64,
    RESOURCE_LIST,
    STRING,
    TIME,
    List,
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
    key=req(STRING, check="qualified-name!"),
    value=val(STRING),
    effect=req(STRING, check="required", enum="NoSchedule PreferNoSchedule NoExecute"),
    timeAdded=opt(TIME),
)

CONFIG_MAP_NODE_CONFIG_SOURCE = record(
    "ConfigMapNodeConfigSource",
    namespace=req(STRING),
    name=req(STRING),
    uid=val(STRING, go="UID"),
    resourceVersion=val(STRING),
    kubeletConfigKey=req(STRING),
)

NODE_CONFIG_SOURCE = record(
    "NodeConfigSource",
    configMap=opt(CONFIG_MAP_NODE_CONFIG_SOURCE),
)

NODE_SPEC = record(
    "NodeSpec",
    podCIDRs=val(List(STRING), strategy="merge", list="set"),
    providerID=val(STRING),
    unschedulable=val(BOOL),
    taints=val(List(TAINT)),
    configSource=opt(NODE_CONFIG_SOURCE),
    externalID=val(STRING, go="DoNotUseExternalID"),
    podCIDR=val(STRING),
)

NODE_CONDITION = record(
    "NodeCondition",
    type=req(STRING),
    status=req(STRING),
    lastHeartbeatTime=req(TIME, optional=True),
    lastTransitionTime=req(TIME, optional=True),
    reason=val(STRING),
    message=val(STRING),
)

NODE_ADDRESS = record(
    "NodeAddress",
    type=req(STRING),
    address=req(STRING),
)

DAEMON_ENDPOINT = record(
    "DaemonEndpoint",
    Port=req(INT32),
)

NODE_DAEMON_ENDPOINTS = record(
    "NodeDaemonEndpoints",
    kubeletEndpoint=req(DAEMON_ENDPOINT, optional=True),
)

NODE_SWAP_STATUS = record(
    "NodeSwapStatus",
    capacity=opt(INT64),
)

NODE_SYSTEM_INFO = record(
    "NodeSystemInfo",
    machineID=req(STRING),
    systemUUID=req(STRING),
    bootID=req(STRING),
    kernelVersion=req(STRING),
    osImage=req(STRING, go="OSImage"),
    containerRuntimeVersion=req(STRING),
    kubeletVersion=req(STRING),
    kubeProxyVersion=req(STRING),
    operatingSystem=req(STRING),
    architecture=req(STRING),
    swap=opt(NODE_SWAP_STATUS),
)

CONTAINER_IMAGE = record(
    "ContainerImage",
    names=req(List(STRING), optional=True),
    sizeBytes=val(INT64),
)

ATTACHED_VOLUME = record(
    "AttachedVolume",
    name=req(STRING),
    devicePath=req(STRING),
)

NODE_CONFIG_STATUS = record(
    "NodeConfigStatus",
    assigned=opt(NODE_CONFIG_SOURCE),
    active=opt(NODE_CONFIG_SOURCE),
    lastKnownGood=opt(NODE_CONFIG_SOURCE),
    error=val(STRING),
)

NODE_RUNTIME_HANDLER_FEATURES = record(
    "NodeRuntimeHandlerFeatures",
    recursiveReadOnlyMounts=opt(BOOL),
    userNamespaces=opt(BOOL),
)

NODE_RUNTIME_HANDLER = record(
    "NodeRuntimeHandler",
    name=req(STRING, optional=True),
    features=opt(NODE_RUNTIME_HANDLER_FEATURES),
)

NODE_FEATURES = record(
    "NodeFeatures",
    supplementalGroupsPolicy=opt(BOOL),
)

NODE_STATUS = record(
    "NodeStatus",
    capacity=val(RESOURCE_LIST),
    allocatable=val(RESOURCE_LIST),
    phase=val(STRING),
    conditions=val(List(NODE_CONDITION), merge="type"),
    addresses=val(List(NODE_ADDRESS), merge="type"),
    daemonEndpoints=req(NODE_DAEMON_ENDPOINTS, optional=True),
    nodeInfo=req(NODE_SYSTEM_INFO, optional=True),
    images=val(List(CONTAINER_IMAGE)),
    volumesInUse=val(List(STRING)),
    volumesAttached=val(List(ATTACHED_VOLUME)),
    config=opt(NODE_CONFIG_STATUS),
    runtimeHandlers=val(List(NODE_RUNTIME_HANDLER)),
    features=opt(NODE_FEATURES),
    declaredFeatures=val(List(STRING)),
)

NODE_SPEC = filling(NODE_SPEC, pod_cidrs)
NODE_STATUS = filling(NODE_STATUS, node_allocatable)

NODE = kind(
    "Node",
    "@taints @node-resources @swap @declared-features @pod-cidrs",
    spec=req(NODE_SPEC, optional=True),
    status=req(NODE_STATUS, optional=True),
)
