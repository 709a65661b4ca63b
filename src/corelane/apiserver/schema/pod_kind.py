"""A pod's status, and the pod itself."""

from corelane.apiserver.schema.container_spec import RESOURCE_REQUIREMENTS
from corelane.apiserver.schema.derived_defaults import (
    grace_period,
    host_network_ports,
    pod_ips,
    pod_level_resources,
    requests_from_limits,
)
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
from corelane.apiserver.schema.pod_spec import POD_SPEC

POD_CONDITION = record(
    "PodCondition",
    type=req(STRING),
    observedGeneration=val(INT64),
    status=req(STRING),
    lastProbeTime=req(TIME, optional=True),
    lastTransitionTime=req(TIME, optional=True),
    reason=val(STRING),
    message=val(STRING),
)

HOST_IP = record(
    "HostIP",
    ip=req(STRING, go="IP"),
)

POD_IP = record(
    "PodIP",
    ip=req(STRING, go="IP"),
)

CONTAINER_STATE_WAITING = record(
    "ContainerStateWaiting",
    reason=val(STRING),
    message=val(STRING),
)

CONTAINER_STATE_RUNNING = record(
    "ContainerStateRunning",
    startedAt=req(TIME, optional=True),
)

CONTAINER_STATE_TERMINATED = record(
    "ContainerStateTerminated",
    exitCode=req(INT32),
    signal=val(INT32),
    reason=val(STRING),
    message=val(STRING),
    startedAt=req(TIME, optional=True),
    finishedAt=req(TIME, optional=True),
    containerID=val(STRING),
)

CONTAINER_STATE = record(
    "ContainerState",
    waiting=opt(CONTAINER_STATE_WAITING),
    running=opt(CONTAINER_STATE_RUNNING),
    terminated=opt(CONTAINER_STATE_TERMINATED),
)

IMAGE_VOLUME_STATUS = record(
    "ImageVolumeStatus",
    imageRef=val(STRING),
)

VOLUME_STATUS = record(
    "VolumeStatus",
    image=opt(IMAGE_VOLUME_STATUS, gated=True),
)

VOLUME_MOUNT_STATUS = record(
    "VolumeMountStatus",
    name=req(STRING),
    mountPath=req(STRING),
    readOnly=val(BOOL),
    recursiveReadOnly=opt(STRING),
    volumeStatus=opt(VOLUME_STATUS),
)

LINUX_CONTAINER_USER = record(
    "LinuxContainerUser",
    uid=req(INT64, go="UID"),
    gid=req(INT64, go="GID"),
    supplementalGroups=val(List(INT64)),
)

CONTAINER_USER = record(
    "ContainerUser",
    linux=opt(LINUX_CONTAINER_USER),
)

RESOURCE_HEALTH = record(
    "ResourceHealth",
    resourceID=req(STRING),
    health=val(STRING),
    message=opt(STRING),
)

RESOURCE_STATUS = record(
    "ResourceStatus",
    name=req(STRING),
    resources=val(List(RESOURCE_HEALTH), list="map", keys="resourceID"),
)

CONTAINER_STATUS = record(
    "ContainerStatus",
    name=req(STRING),
    state=req(CONTAINER_STATE, optional=True),
    lastState=req(CONTAINER_STATE, go="LastTerminationState", optional=True),
    ready=req(BOOL),
    restartCount=req(INT32),
    image=req(STRING),
    imageID=req(STRING),
    containerID=val(STRING),
    started=opt(BOOL),
    allocatedResources=val(RESOURCE_LIST),
    resources=opt(RESOURCE_REQUIREMENTS),
    volumeMounts=val(List(VOLUME_MOUNT_STATUS), merge="mountPath"),
    user=opt(CONTAINER_USER),
    allocatedResourcesStatus=val(List(RESOURCE_STATUS), merge="name"),
    stopSignal=opt(STRING, gated=True),
)

POD_RESOURCE_CLAIM_STATUS = record(
    "PodResourceClaimStatus",
    name=req(STRING),
    resourceClaimName=opt(STRING),
)

CONTAINER_EXTENDED_RESOURCE_REQUEST = record(
    "ContainerExtendedResourceRequest",
    containerName=req(STRING),
    resourceName=req(STRING),
    requestName=req(STRING),
)

POD_EXTENDED_RESOURCE_CLAIM_STATUS = record(
    "PodExtendedResourceClaimStatus",
    requestMappings=req(List(CONTAINER_EXTENDED_RESOURCE_REQUEST)),
    resourceClaimName=req(STRING),
)

NODE_ALLOCATABLE_RESOURCE_CLAIM_STATUS = record(
    "NodeAllocatableResourceClaimStatus",
    resourceClaimName=req(STRING),
    containers=val(List(STRING), list="set"),
    resources=req(RESOURCE_LIST),
)

POD_STATUS = record(
    "PodStatus",
    observedGeneration=val(INT64),
    phase=val(STRING),
    conditions=val(List(POD_CONDITION), merge="type"),
    message=val(STRING),
    reason=val(STRING),
    nominatedNodeName=val(STRING),
    hostIP=val(STRING),
    hostIPs=val(List(HOST_IP), merge="ip", list="atomic"),
    podIPs=val(List(POD_IP), merge="ip"),
    startTime=opt(TIME),
    qosClass=val(STRING, go="QOSClass"),
    initContainerStatuses=val(List(CONTAINER_STATUS)),
    containerStatuses=val(List(CONTAINER_STATUS)),
    ephemeralContainerStatuses=val(List(CONTAINER_STATUS)),
    resize=val(STRING),
    resourceClaimStatuses=val(List(POD_RESOURCE_CLAIM_STATUS), merge="name", strategy="merge,retainKeys"),
    extendedResourceClaimStatus=opt(POD_EXTENDED_RESOURCE_CLAIM_STATUS),
    allocatedResources=val(RESOURCE_LIST),
    resources=opt(RESOURCE_REQUIREMENTS),
    nodeAllocatableResourceClaimStatuses=val(List(NODE_ALLOCATABLE_RESOURCE_CLAIM_STATUS), gated=True),
    podIP=val(STRING),
)

POD_STATUS = filling(POD_STATUS, pod_ips)

POD = kind(
    "Pod",
    spec=req(POD_SPEC, optional=True),
    status=req(POD_STATUS, optional=True),
)

POD = filling(POD, requests_from_limits, pod_level_resources, host_network_ports, grace_period)
