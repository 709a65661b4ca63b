"""A pod's status, and the pod itself."""

from corelane.embedded.apiserver.schema import pod_spec  # noqa: F401 - for the types that rows here name
from corelane.embedded.apiserver.schema.derived_defaults import (
    grace_period,
    host_network_ports,
    pod_ips,
    pod_level_resources,
    requests_from_limits,
)
from corelane.embedded.apiserver.schema.notation import Columns, record
from corelane.embedded.apiserver.schema.object_meta import kind

record(
    "PodCondition",
    "type!=1 observedGeneration:int64=7 status!=2 lastProbeTime+:time=3 lastTransitionTime+:time=4 reason=5 "
    "message=6",
)

record("HostIP", "ip!=1")

record("PodIP", "ip!=1")

record("ContainerStateWaiting", "reason=1 message=2")

record("ContainerStateRunning", "startedAt+:time=1")

record(
    "ContainerStateTerminated",
    "exitCode!:int32=1 signal:int32=2 reason=3 message=4 startedAt+:time=5 finishedAt+:time=6 containerID=7",
)

record(
    "ContainerState",
    "waiting?:ContainerStateWaiting=1 running?:ContainerStateRunning=2 "
    "terminated?:ContainerStateTerminated=3",
)

record("ImageVolumeStatus", "imageRef=1")

record("VolumeStatus", "image?:ImageVolumeStatus=1", image=Columns(gated=True))

record(
    "VolumeMountStatus",
    "name!=1 mountPath!=2 readOnly:bool=3 recursiveReadOnly?=4 volumeStatus?:VolumeStatus=5",
)

record("LinuxContainerUser", "uid!:int64=1 gid!:int64=2 supplementalGroups:[]int64=3")

record("ContainerUser", "linux?:LinuxContainerUser=1")

record("ResourceHealth", "resourceID!=1 health=2 message?=6")

record(
    "ResourceStatus", "name!=1 resources:[]ResourceHealth=2", resources=Columns(list="map", keys="resourceID")
)

record(
    "ContainerStatus",
    "name!=1 state+:ContainerState=2 lastState+:ContainerState=3 ready!:bool=4 restartCount!:int32=5 "
    "image!=6 imageID!=7 containerID=8 started?:bool=9 allocatedResources:{}amount=10 "
    "resources?:ResourceRequirements=11 volumeMounts:[]VolumeMountStatus=12 user?:ContainerUser=13 "
    "allocatedResourcesStatus:[]ResourceStatus=14 stopSignal?=15",
    volumeMounts=Columns(merge="mountPath"),
    allocatedResourcesStatus=Columns(merge="name"),
)

record("PodResourceClaimStatus", "name!=1 resourceClaimName?=2")

record("ContainerExtendedResourceRequest", "containerName!=1 resourceName!=2 requestName!=3")

record(
    "PodExtendedResourceClaimStatus",
    "requestMappings!:[]ContainerExtendedResourceRequest=1 resourceClaimName!=2",
)

record(
    "NodeAllocatableResourceClaimStatus",
    "resourceClaimName!=1 containers:[]string=2 resources!:{}amount=3",
    containers=Columns(list="set"),
)

record(
    "PodStatus",
    "observedGeneration:int64=17 phase=1 conditions:[]PodCondition=2 message=3 reason=4 "
    "nominatedNodeName=11 hostIP=5 hostIPs:[]HostIP=16 podIPs:[]PodIP=12 startTime?:time=7 qosClass=9 "
    "initContainerStatuses:[]ContainerStatus=10 containerStatuses:[]ContainerStatus=8 "
    "ephemeralContainerStatuses:[]ContainerStatus=13 resize=14 "
    "resourceClaimStatuses:[]PodResourceClaimStatus=15 "
    "extendedResourceClaimStatus?:PodExtendedResourceClaimStatus=18 allocatedResources:{}amount=19 "
    "resources?:ResourceRequirements=20 "
    "nodeAllocatableResourceClaimStatuses:[]NodeAllocatableResourceClaimStatus=21 podIP=6",
    defaults=(pod_ips,),
    conditions=Columns(merge="type"),
    hostIPs=Columns(merge="ip", list="atomic"),
    podIPs=Columns(merge="ip"),
    resourceClaimStatuses=Columns(merge="name", strategy="merge,retainKeys"),
    nodeAllocatableResourceClaimStatuses=Columns(gated=True),
)


POD = kind(
    "Pod",
    "spec+:PodSpec=2 status+:PodStatus=3",
    defaults=(
        requests_from_limits,
        pod_level_resources,
        host_network_ports,
        grace_period,
    ),
)
