"""Pods: specification, status, and the pod itself."""

from corelane.embedded.apiserver.schema import container_spec  # noqa: F401 - for the types that rows here name
from corelane.embedded.apiserver.schema.defaults_and_formats import (
    grace_period,
    host_network_ports,
    pod_ips,
    pod_level_resources,
    requests_from_limits,
    service_account,
)
from corelane.embedded.apiserver.schema.notation import Columns, alike, kind, record

record("Sysctl", "name!=1|required value!=2")

record(
    "PodSecurityContext",
    "seLinuxOptions?:SELinuxOptions=1 windowsOptions?:WindowsSecurityContextOptions=8 "
    "runAsUser?:int64=2|0..2147483647 runAsGroup?:int64=6|0..2147483647 runAsNonRoot?:bool=3 "
    "supplementalGroups:[]int64=4|0..2147483647 supplementalGroupsPolicy?=12 "
    "fsGroup?:int64=5|0..2147483647 "
    "fsGroupChangePolicy?=9 sysctls:[]Sysctl=7 seccompProfile?:SeccompProfile=10 "
    "appArmorProfile?:AppArmorProfile=11 seLinuxChangePolicy?=13",
    supplementalGroupsPolicy=Columns(enum="Merge Strict"),
    fsGroupChangePolicy=Columns(enum="Always OnRootMismatch"),
    seLinuxChangePolicy=Columns(enum="MountOption Recursive"),
)

record("NodeSelectorRequirement", "key!=1 operator!=2 values:[]string=3")

record(
    "NodeSelectorTerm",
    "matchExpressions:[]NodeSelectorRequirement=1 matchFields:[]NodeSelectorRequirement=2",
    rules="node-expressions node-fields",
    atomic=True,
)

record(
    "NodeSelector",
    "nodeSelectorTerms!:[]NodeSelectorTerm=1|required",
    atomic=True,
)

record("PreferredSchedulingTerm", "weight!:int32=1|1..100! preference!:NodeSelectorTerm=2")

record(
    "NodeAffinity",
    "requiredDuringSchedulingIgnoredDuringExecution?:NodeSelector=1 "
    "preferredDuringSchedulingIgnoredDuringExecution:[]PreferredSchedulingTerm=2",
)

record(
    "PodAffinityTerm",
    "labelSelector?:LabelSelector=1 namespaces:[]string=2|dns-label topologyKey!=3|required|qualified-name "
    "namespaceSelector?:LabelSelector=4 matchLabelKeys:[]string=5|qualified-name "
    "mismatchLabelKeys:[]string=6|qualified-name",
    rules="label-keys",
)

record("WeightedPodAffinityTerm", "weight!:int32=1|1..100! podAffinityTerm!:PodAffinityTerm=2")

record(
    "PodAffinity",
    "requiredDuringSchedulingIgnoredDuringExecution:[]PodAffinityTerm=1 "
    "preferredDuringSchedulingIgnoredDuringExecution:[]WeightedPodAffinityTerm=2",
)

alike("PodAffinity", "PodAntiAffinity")

record(
    "Affinity", "nodeAffinity?:NodeAffinity=1 podAffinity?:PodAffinity=2 podAntiAffinity?:PodAntiAffinity=3"
)

record(
    "Toleration",
    "key=1|qualified-name operator=2 value=3|label-value effect=4 tolerationSeconds?:int64=5",
    rules="toleration",
    operator=Columns(enum="Equal Exists"),
    effect=Columns(enum="NoSchedule PreferNoSchedule NoExecute"),
)

record("HostAlias", "ip!=1|required hostnames:[]string=2|dns-subdomain")

record("PodDNSConfigOption", "name=1 value?=2")

record("PodDNSConfig", "nameservers:[]string=1 searches:[]string=2 options:[]PodDNSConfigOption=3")

record("PodReadinessGate", "conditionType!=1|qualified-name!")

record(
    "TopologySpreadConstraint",
    "maxSkew!:int32=1|1..! topologyKey!=2|required whenUnsatisfiable!=3 labelSelector?:LabelSelector=4 "
    "minDomains?:int32=5|1.. nodeAffinityPolicy?=6 nodeTaintsPolicy?=7 "
    "matchLabelKeys:[]string=8|qualified-name",
    rules="label-keys",
    whenUnsatisfiable=Columns(enum="DoNotSchedule ScheduleAnyway"),
    nodeAffinityPolicy=Columns(enum="Honor Ignore"),
    nodeTaintsPolicy=Columns(enum="Honor Ignore"),
)

record("PodOS", "name!=1|required", name=Columns(enum="linux windows"))

record("PodSchedulingGate", "name!=1")

record(
    "PodResourceClaim",
    "name!=1|required|dns-label resourceClaimName?=3|dns-subdomain "
    "resourceClaimTemplateName?=4|dns-subdomain",
)

record("PodSchedulingGroup", "podGroupName?=1")

record(
    "PodSpec",
    "volumes:[]Volume=1|unique-names initContainers:[]Container=20 containers!:[]Container=2|required "
    "ephemeralContainers:[]EphemeralContainer=34 restartPolicy=3|required "
    "terminationGracePeriodSeconds?:int64=4 activeDeadlineSeconds?:int64=5|1..2147483647 "
    "dnsPolicy=6|required nodeSelector:{}string=7|labels serviceAccountName=8|dns-subdomain "
    "automountServiceAccountToken?:bool=21 nodeName=10|dns-subdomain securityContext?:PodSecurityContext=14 "
    "imagePullSecrets:[]LocalObjectReference=15 hostname=16|dns-label subdomain=17|dns-label "
    "setHostnameAsFQDN?:bool=35 affinity?:Affinity=18 schedulerName=19 tolerations:[]Toleration=22 "
    "hostAliases:[]HostAlias=23 priorityClassName=24|dns-subdomain priority?:int32=25 preemptionPolicy?=31 "
    "dnsConfig?:PodDNSConfig=26 readinessGates:[]PodReadinessGate=28 runtimeClassName?=29|dns-subdomain "
    "overhead:{}amount=32 enableServiceLinks?:bool=30 "
    "topologySpreadConstraints:[]TopologySpreadConstraint=33 os?:PodOS=36 "
    "schedulingGates:[]PodSchedulingGate=38|unique-names|gate-names resourceClaims:[]PodResourceClaim=39 "
    "resources?:ResourceRequirements=40 hostnameOverride?=41|dns-subdomain|len<=64 "
    "schedulingGroup?:PodSchedulingGroup=43 serviceAccount=9 hostNetwork:bool=11 hostPID:bool=12 "
    "hostIPC:bool=13 shareProcessNamespace?:bool=27 hostUsers?:bool=37",
    rules="pod-containers pod-resources overhead",
    defaults=(service_account,),
    volumes=Columns(merge="name", strategy="merge,retainKeys"),
    initContainers=Columns(merge="name"),
    containers=Columns(merge="name"),
    ephemeralContainers=Columns(merge="name"),
    restartPolicy=Columns(default="Always", enum="Always OnFailure Never"),
    terminationGracePeriodSeconds=Columns(default=30),
    dnsPolicy=Columns(default="ClusterFirst", enum="ClusterFirstWithHostNet ClusterFirst Default None"),
    nodeSelector=Columns(atomic=True),
    securityContext=Columns(default={}),
    imagePullSecrets=Columns(merge="name"),
    schedulerName=Columns(default="default-scheduler"),
    hostAliases=Columns(merge="ip"),
    preemptionPolicy=Columns(enum="PreemptLowerPriority Never"),
    enableServiceLinks=Columns(default=True),
    topologySpreadConstraints=Columns(merge="topologyKey", keys="topologyKey whenUnsatisfiable"),
    schedulingGates=Columns(merge="name"),
    resources=Columns(walked=False),
    resourceClaims=Columns(merge="name", strategy="merge,retainKeys"),
    schedulingGroup=Columns(gated=True),
)


# --- status

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
    status=Columns(walked=False),
    defaults=(
        requests_from_limits,
        pod_level_resources,
        host_network_ports,
        grace_period,
    ),
)
