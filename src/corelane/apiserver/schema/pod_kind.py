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
    ListType,
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
    type=req(STRING, 1),
    observedGeneration=val(INT64, 7),
    status=req(STRING, 2),
    lastProbeTime=req(TIME, 3, optional=True),
    lastTransitionTime=req(TIME, 4, optional=True),
    reason=val(STRING, 5),
    message=val(STRING, 6),
)

HOST_IP = record("HostIP", ip=req(STRING, 1, go="IP"))

POD_IP = record("PodIP", ip=req(STRING, 1, go="IP"))

CONTAINER_STATE_WAITING = record("ContainerStateWaiting", reason=val(STRING, 1), message=val(STRING, 2))

CONTAINER_STATE_RUNNING = record("ContainerStateRunning", startedAt=req(TIME, 1, optional=True))

CONTAINER_STATE_TERMINATED = record(
    "ContainerStateTerminated",
    exitCode=req(INT32, 1),
    signal=val(INT32, 2),
    reason=val(STRING, 3),
    message=val(STRING, 4),
    startedAt=req(TIME, 5, optional=True),
    finishedAt=req(TIME, 6, optional=True),
    containerID=val(STRING, 7),
)

CONTAINER_STATE = record(
    "ContainerState",
    waiting=opt(CONTAINER_STATE_WAITING, 1),
    running=opt(CONTAINER_STATE_RUNNING, 2),
    terminated=opt(CONTAINER_STATE_TERMINATED, 3),
)

IMAGE_VOLUME_STATUS = record("ImageVolumeStatus", imageRef=val(STRING, 1))

VOLUME_STATUS = record("VolumeStatus", image=opt(IMAGE_VOLUME_STATUS, 1, gated=True))

VOLUME_MOUNT_STATUS = record(
    "VolumeMountStatus",
    name=req(STRING, 1),
    mountPath=req(STRING, 2),
    readOnly=val(BOOL, 3),
    recursiveReadOnly=opt(STRING, 4),
    volumeStatus=opt(VOLUME_STATUS, 5),
)

LINUX_CONTAINER_USER = record(
    "LinuxContainerUser",
    uid=req(INT64, 1, go="UID"),
    gid=req(INT64, 2, go="GID"),
    supplementalGroups=val(ListType(INT64), 3),
)

CONTAINER_USER = record("ContainerUser", linux=opt(LINUX_CONTAINER_USER, 1))

RESOURCE_HEALTH = record(
    "ResourceHealth", resourceID=req(STRING, 1), health=val(STRING, 2), message=opt(STRING, 6)
)

RESOURCE_STATUS = record(
    "ResourceStatus",
    name=req(STRING, 1),
    resources=val(ListType(RESOURCE_HEALTH), 2, list="map", keys="resourceID"),
)

CONTAINER_STATUS = record(
    "ContainerStatus",
    name=req(STRING, 1),
    state=req(CONTAINER_STATE, 2, optional=True),
    lastState=req(CONTAINER_STATE, 3, go="LastTerminationState", optional=True),
    ready=req(BOOL, 4),
    restartCount=req(INT32, 5),
    image=req(STRING, 6),
    imageID=req(STRING, 7),
    containerID=val(STRING, 8),
    started=opt(BOOL, 9),
    allocatedResources=val(RESOURCE_LIST, 10),
    resources=opt(RESOURCE_REQUIREMENTS, 11),
    volumeMounts=val(ListType(VOLUME_MOUNT_STATUS), 12, merge="mountPath"),
    user=opt(CONTAINER_USER, 13),
    allocatedResourcesStatus=val(ListType(RESOURCE_STATUS), 14, merge="name"),
    stopSignal=opt(STRING, 15, gated=True),
)

POD_RESOURCE_CLAIM_STATUS = record(
    "PodResourceClaimStatus", name=req(STRING, 1), resourceClaimName=opt(STRING, 2)
)

CONTAINER_EXTENDED_RESOURCE_REQUEST = record(
    "ContainerExtendedResourceRequest",
    containerName=req(STRING, 1),
    resourceName=req(STRING, 2),
    requestName=req(STRING, 3),
)

POD_EXTENDED_RESOURCE_CLAIM_STATUS = record(
    "PodExtendedResourceClaimStatus",
    requestMappings=req(ListType(CONTAINER_EXTENDED_RESOURCE_REQUEST), 1),
    resourceClaimName=req(STRING, 2),
)

NODE_ALLOCATABLE_RESOURCE_CLAIM_STATUS = record(
    "NodeAllocatableResourceClaimStatus",
    resourceClaimName=req(STRING, 1),
    containers=val(ListType(STRING), 2, list="set"),
    resources=req(RESOURCE_LIST, 3),
)

POD_STATUS = record(
    "PodStatus",
    observedGeneration=val(INT64, 17),
    phase=val(STRING, 1),
    conditions=val(ListType(POD_CONDITION), 2, merge="type"),
    message=val(STRING, 3),
    reason=val(STRING, 4),
    nominatedNodeName=val(STRING, 11),
    hostIP=val(STRING, 5),
    hostIPs=val(ListType(HOST_IP), 16, merge="ip", list="atomic"),
    podIPs=val(ListType(POD_IP), 12, merge="ip"),
    startTime=opt(TIME, 7),
    qosClass=val(STRING, 9, go="QOSClass"),
    initContainerStatuses=val(ListType(CONTAINER_STATUS), 10),
    containerStatuses=val(ListType(CONTAINER_STATUS), 8),
    ephemeralContainerStatuses=val(ListType(CONTAINER_STATUS), 13),
    resize=val(STRING, 14),
    resourceClaimStatuses=val(
        ListType(POD_RESOURCE_CLAIM_STATUS), 15, merge="name", strategy="merge,retainKeys"
    ),
    extendedResourceClaimStatus=opt(POD_EXTENDED_RESOURCE_CLAIM_STATUS, 18),
    allocatedResources=val(RESOURCE_LIST, 19),
    resources=opt(RESOURCE_REQUIREMENTS, 20),
    nodeAllocatableResourceClaimStatuses=val(
        ListType(NODE_ALLOCATABLE_RESOURCE_CLAIM_STATUS), 21, gated=True
    ),
    podIP=val(STRING, 6),
)

POD_STATUS = filling(POD_STATUS, pod_ips)

POD = kind("Pod", spec=req(POD_SPEC, 2, optional=True), status=req(POD_STATUS, 3, optional=True))

POD = filling(POD, requests_from_limits, pod_level_resources, host_network_ports, grace_period)
