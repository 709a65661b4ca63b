"""A pod's specification."""

from corelane.embedded.apiserver.schema import container_spec  # noqa: F401 - for the types that rows here name
from corelane.embedded.apiserver.schema.derived_defaults import service_account
from corelane.embedded.apiserver.schema.notation import Columns, alike, record

record("Sysctl", "name!=1 value!=2")

record(
    "PodSecurityContext",
    "seLinuxOptions?:SELinuxOptions=1 windowsOptions?:WindowsSecurityContextOptions=8 "
    "runAsUser?:int64=2|user-id runAsGroup?:int64=6|user-id runAsNonRoot?:bool=3 "
    "supplementalGroups:[]int64=4|group-ids supplementalGroupsPolicy?=12 fsGroup?:int64=5|user-id "
    "fsGroupChangePolicy?=9 sysctls:[]Sysctl=7 seccompProfile?:SeccompProfile=10 "
    "appArmorProfile?:AppArmorProfile=11 seLinuxChangePolicy?=13",
    order=(
        "fsGroup runAsUser runAsGroup supplementalGroups @share-process @sysctls fsGroupChangePolicy "
        "seccompProfile windowsOptions appArmorProfile supplementalGroupsPolicy @selinux-change"
    ),
    supplementalGroupsPolicy=Columns(enum="Merge Strict"),
    fsGroupChangePolicy=Columns(enum="Always OnRootMismatch"),
    seLinuxChangePolicy=Columns(enum="MountOption Recursive"),
)

record("NodeSelectorRequirement", "key!=1 operator!=2 values:[]string=3")

record(
    "NodeSelectorTerm",
    "matchExpressions:[]NodeSelectorRequirement=1 matchFields:[]NodeSelectorRequirement=2",
    order="@node-expressions @node-fields",
    atomic=True,
)

record(
    "NodeSelector",
    "nodeSelectorTerms!:[]NodeSelectorTerm=1",
    order="@node-selector-terms nodeSelectorTerms",
    atomic=True,
)

record("PreferredSchedulingTerm", "weight!:int32=1|weight! preference!:NodeSelectorTerm=2")

record(
    "NodeAffinity",
    "requiredDuringSchedulingIgnoredDuringExecution?:NodeSelector=1 "
    "preferredDuringSchedulingIgnoredDuringExecution:[]PreferredSchedulingTerm=2",
)

record(
    "PodAffinityTerm",
    "labelSelector?:LabelSelector=1 namespaces:[]string=2 topologyKey!=3 namespaceSelector?:LabelSelector=4 "
    "matchLabelKeys:[]string=5 mismatchLabelKeys:[]string=6",
    order="labelSelector namespaceSelector @term-namespaces @term-label-keys @term-topology-key",
)

record("WeightedPodAffinityTerm", "weight!:int32=1|weight! podAffinityTerm!:PodAffinityTerm=2")

record(
    "PodAffinity",
    "requiredDuringSchedulingIgnoredDuringExecution:[]PodAffinityTerm=1 "
    "preferredDuringSchedulingIgnoredDuringExecution:[]WeightedPodAffinityTerm=2",
)

alike("PodAffinity", "PodAntiAffinity")

record(
    "Affinity", "nodeAffinity?:NodeAffinity=1 podAffinity?:PodAffinity=2 podAntiAffinity?:PodAntiAffinity=3"
)

TOLERATION = record(
    "Toleration", "key=1 operator=2 value=3 effect=4 tolerationSeconds?:int64=5", order="@toleration"
)

record("HostAlias", "ip!=1|ip! hostnames:[]string=2|dns-subdomains")

record("PodDNSConfigOption", "name=1 value?=2")

record("PodDNSConfig", "nameservers:[]string=1 searches:[]string=2 options:[]PodDNSConfigOption=3")

record("PodReadinessGate", "conditionType!=1|qualified-name!")

record(
    "TopologySpreadConstraint",
    "maxSkew!:int32=1|positive! topologyKey!=2 whenUnsatisfiable!=3 labelSelector?:LabelSelector=4 "
    "minDomains?:int32=5|positive nodeAffinityPolicy?=6 nodeTaintsPolicy?=7 matchLabelKeys:[]string=8",
    order=(
        "maxSkew @spread-topology-key whenUnsatisfiable @spread-repeated @min-domains nodeAffinityPolicy "
        "nodeTaintsPolicy @spread-label-keys labelSelector"
    ),
    whenUnsatisfiable=Columns(enum="DoNotSchedule ScheduleAnyway"),
    nodeAffinityPolicy=Columns(enum="Honor Ignore"),
    nodeTaintsPolicy=Columns(enum="Honor Ignore"),
)

record("PodOS", "name!=1")

record("PodSchedulingGate", "name!=1")

POD_RESOURCE_CLAIM = record("PodResourceClaim", "name!=1 resourceClaimName?=3 resourceClaimTemplateName?=4")

record("PodSchedulingGroup", "podGroupName?=1")

POD_SPEC = record(
    "PodSpec",
    "volumes:[]Volume=1 initContainers:[]Container=20 containers!:[]Container=2 "
    "ephemeralContainers:[]EphemeralContainer=34 restartPolicy=3|required "
    "terminationGracePeriodSeconds?:int64=4 activeDeadlineSeconds?:int64=5|deadline dnsPolicy=6|required "
    "nodeSelector:{}string=7|labels serviceAccountName=8|dns-subdomain "
    "automountServiceAccountToken?:bool=21 nodeName=10|dns-subdomain securityContext?:PodSecurityContext=14 "
    "imagePullSecrets:[]LocalObjectReference=15 hostname=16|dns-label subdomain=17|dns-label "
    "setHostnameAsFQDN?:bool=35 affinity?:Affinity=18 schedulerName=19 tolerations:[]Toleration=22 "
    "hostAliases:[]HostAlias=23 priorityClassName=24|dns-subdomain priority?:int32=25 "
    "preemptionPolicy?=31|not-empty dnsConfig?:PodDNSConfig=26 readinessGates:[]PodReadinessGate=28 "
    "runtimeClassName?=29|dns-subdomain overhead:{}amount=32 enableServiceLinks?:bool=30 "
    "topologySpreadConstraints:[]TopologySpreadConstraint=33 os?:PodOS=36 "
    "schedulingGates:[]PodSchedulingGate=38 resourceClaims:[]PodResourceClaim=39 "
    "resources?:ResourceRequirements=40 hostnameOverride?=41|dns-subdomain "
    "schedulingGroup?:PodSchedulingGroup=43 serviceAccount=9 hostNetwork:bool=11 hostPID:bool=12 "
    "hostIPC:bool=13 shareProcessNamespace?:bool=27 hostUsers?:bool=37",
    order=(
        "@volumes @resource-claims @containers @init-containers @ephemeral-containers @pod-resources "
        "@host-ports restartPolicy dnsPolicy nodeSelector securityContext affinity @dns-config "
        "readinessGates @scheduling-gates topologySpreadConstraints @host-process @host-users "
        "@hostname-override serviceAccountName nodeName activeDeadlineSeconds "
        "hostname subdomain tolerations hostAliases "
        "priorityClassName runtimeClassName preemptionPolicy @overhead @os @file-keys"
    ),
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
    resourceClaims=Columns(merge="name", strategy="merge,retainKeys"),
    schedulingGroup=Columns(gated=True),
)
