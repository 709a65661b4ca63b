"""A pod's specification."""

from corelane.apiserver.schema.container_spec import (
    APP_ARMOR_PROFILE,
    CONTAINER,
    EPHEMERAL_CONTAINER,
    RESOURCE_REQUIREMENTS,
    SE_LINUX_OPTIONS,
    SECCOMP_PROFILE,
    WINDOWS_SECURITY_CONTEXT_OPTIONS,
)
from corelane.apiserver.schema.derived_defaults import service_account
from corelane.apiserver.schema.notation import (
    BOOL,
    INT32,
    INT64,
    RESOURCE_LIST,
    STRING,
    ListType,
    MapType,
    alike,
    filling,
    opt,
    record,
    req,
    val,
)
from corelane.apiserver.schema.object_meta import LABEL_SELECTOR
from corelane.apiserver.schema.volume_sources import LOCAL_OBJECT_REFERENCE, VOLUME

SYSCTL = record("Sysctl", name=req(STRING, 1), value=req(STRING, 2))

POD_SECURITY_CONTEXT = record(
    "PodSecurityContext",
    "fsGroup runAsUser runAsGroup supplementalGroups @share-process @sysctls fsGroupChangePolicy "
    "seccompProfile windowsOptions appArmorProfile supplementalGroupsPolicy seLinuxChangePolicy",
    seLinuxOptions=opt(SE_LINUX_OPTIONS, 1, go="SELinuxOptions"),
    windowsOptions=opt(WINDOWS_SECURITY_CONTEXT_OPTIONS, 8),
    runAsUser=opt(INT64, 2, check="user-id"),
    runAsGroup=opt(INT64, 6, check="user-id"),
    runAsNonRoot=opt(BOOL, 3),
    supplementalGroups=val(ListType(INT64), 4, check="group-ids"),
    supplementalGroupsPolicy=opt(STRING, 12, enum="Merge Strict"),
    fsGroup=opt(INT64, 5, go="FSGroup", check="user-id"),
    fsGroupChangePolicy=opt(STRING, 9, go="FSGroupChangePolicy", enum="Always OnRootMismatch"),
    sysctls=val(ListType(SYSCTL), 7),
    seccompProfile=opt(SECCOMP_PROFILE, 10),
    appArmorProfile=opt(APP_ARMOR_PROFILE, 11),
    seLinuxChangePolicy=opt(STRING, 13, go="SELinuxChangePolicy", enum="MountOption Recursive"),
)

NODE_SELECTOR_REQUIREMENT = record(
    "NodeSelectorRequirement", key=req(STRING, 1), operator=req(STRING, 2), values=val(ListType(STRING), 3)
)

NODE_SELECTOR_TERM = record(
    "NodeSelectorTerm",
    "@node-expressions @node-fields",
    matchExpressions=val(ListType(NODE_SELECTOR_REQUIREMENT), 1),
    matchFields=val(ListType(NODE_SELECTOR_REQUIREMENT), 2),
)

NODE_SELECTOR = record(
    "NodeSelector",
    "@node-selector-terms nodeSelectorTerms",
    nodeSelectorTerms=req(ListType(NODE_SELECTOR_TERM), 1),
)

PREFERRED_SCHEDULING_TERM = record(
    "PreferredSchedulingTerm", weight=req(INT32, 1, check="weight!"), preference=req(NODE_SELECTOR_TERM, 2)
)

NODE_AFFINITY = record(
    "NodeAffinity",
    requiredDuringSchedulingIgnoredDuringExecution=opt(NODE_SELECTOR, 1),
    preferredDuringSchedulingIgnoredDuringExecution=val(ListType(PREFERRED_SCHEDULING_TERM), 2),
)

POD_AFFINITY_TERM = record(
    "PodAffinityTerm",
    "labelSelector namespaceSelector @term-namespaces @term-label-keys @term-topology-key",
    labelSelector=opt(LABEL_SELECTOR, 1),
    namespaces=val(ListType(STRING), 2),
    topologyKey=req(STRING, 3),
    namespaceSelector=opt(LABEL_SELECTOR, 4),
    matchLabelKeys=val(ListType(STRING), 5),
    mismatchLabelKeys=val(ListType(STRING), 6),
)

WEIGHTED_POD_AFFINITY_TERM = record(
    "WeightedPodAffinityTerm",
    weight=req(INT32, 1, check="weight!"),
    podAffinityTerm=req(POD_AFFINITY_TERM, 2),
)

POD_AFFINITY = record(
    "PodAffinity",
    requiredDuringSchedulingIgnoredDuringExecution=val(ListType(POD_AFFINITY_TERM), 1),
    preferredDuringSchedulingIgnoredDuringExecution=val(ListType(WEIGHTED_POD_AFFINITY_TERM), 2),
)

POD_ANTI_AFFINITY = alike(POD_AFFINITY, "PodAntiAffinity")

AFFINITY = record(
    "Affinity",
    nodeAffinity=opt(NODE_AFFINITY, 1),
    podAffinity=opt(POD_AFFINITY, 2),
    podAntiAffinity=opt(POD_ANTI_AFFINITY, 3),
)

TOLERATION = record(
    "Toleration",
    "@toleration",
    key=val(STRING, 1),
    operator=val(STRING, 2),
    value=val(STRING, 3),
    effect=val(STRING, 4),
    tolerationSeconds=opt(INT64, 5),
)

HOST_ALIAS = record(
    "HostAlias",
    ip=req(STRING, 1, go="IP", check="ip!"),
    hostnames=val(ListType(STRING), 2, check="dns-subdomains"),
)

POD_DNS_CONFIG_OPTION = record("PodDNSConfigOption", name=val(STRING, 1), value=opt(STRING, 2))

POD_DNS_CONFIG = record(
    "PodDNSConfig",
    nameservers=val(ListType(STRING), 1),
    searches=val(ListType(STRING), 2),
    options=val(ListType(POD_DNS_CONFIG_OPTION), 3),
)

POD_READINESS_GATE = record("PodReadinessGate", conditionType=req(STRING, 1, check="qualified-name!"))

TOPOLOGY_SPREAD_CONSTRAINT = record(
    "TopologySpreadConstraint",
    "maxSkew @spread-topology-key whenUnsatisfiable @spread-repeated @min-domains nodeAffinityPolicy "
    "nodeTaintsPolicy @spread-label-keys labelSelector",
    maxSkew=req(INT32, 1, check="positive!"),
    topologyKey=req(STRING, 2),
    whenUnsatisfiable=req(STRING, 3, enum="DoNotSchedule ScheduleAnyway"),
    labelSelector=opt(LABEL_SELECTOR, 4),
    minDomains=opt(INT32, 5, check="positive"),
    nodeAffinityPolicy=opt(STRING, 6, enum="Honor Ignore"),
    nodeTaintsPolicy=opt(STRING, 7, enum="Honor Ignore"),
    matchLabelKeys=val(ListType(STRING), 8),
)

POD_OS = record("PodOS", name=req(STRING, 1))

POD_SCHEDULING_GATE = record("PodSchedulingGate", name=req(STRING, 1))

POD_RESOURCE_CLAIM = record(
    "PodResourceClaim",
    name=req(STRING, 1),
    resourceClaimName=opt(STRING, 3),
    resourceClaimTemplateName=opt(STRING, 4),
)

POD_SCHEDULING_GROUP = record("PodSchedulingGroup", podGroupName=opt(STRING, 1))

POD_SPEC = record(
    "PodSpec",
    "@volumes @resource-claims @containers @init-containers @ephemeral-containers @pod-resources "
    "@host-ports restartPolicy dnsPolicy nodeSelector securityContext affinity @dns-config "
    "readinessGates @scheduling-gates topologySpreadConstraints @host-users "
    "@hostname-override serviceAccountName nodeName activeDeadlineSeconds hostname subdomain tolerations "
    "hostAliases priorityClassName runtimeClassName preemptionPolicy @overhead @os @file-keys",
    volumes=val(ListType(VOLUME), 1, merge="name", strategy="merge,retainKeys"),
    initContainers=val(ListType(CONTAINER), 20, merge="name"),
    containers=req(ListType(CONTAINER), 2, merge="name"),
    ephemeralContainers=val(ListType(EPHEMERAL_CONTAINER), 34, merge="name"),
    restartPolicy=val(STRING, 3, default="Always", check="required", enum="Always OnFailure Never"),
    terminationGracePeriodSeconds=opt(INT64, 4, default=30),
    activeDeadlineSeconds=opt(INT64, 5, check="deadline"),
    dnsPolicy=val(
        STRING,
        6,
        go="DNSPolicy",
        default="ClusterFirst",
        check="required",
        enum="ClusterFirstWithHostNet ClusterFirst Default None",
    ),
    nodeSelector=val(MapType(STRING), 7, atomic=True, check="labels"),
    serviceAccountName=val(STRING, 8, check="dns-subdomain"),
    automountServiceAccountToken=opt(BOOL, 21),
    nodeName=val(STRING, 10, check="dns-subdomain"),
    securityContext=opt(POD_SECURITY_CONTEXT, 14, default={}),
    imagePullSecrets=val(ListType(LOCAL_OBJECT_REFERENCE), 15, merge="name"),
    hostname=val(STRING, 16, check="dns-label"),
    subdomain=val(STRING, 17, check="dns-label"),
    setHostnameAsFQDN=opt(BOOL, 35),
    affinity=opt(AFFINITY, 18),
    schedulerName=val(STRING, 19, default="default-scheduler"),
    tolerations=val(ListType(TOLERATION), 22),
    hostAliases=val(ListType(HOST_ALIAS), 23, merge="ip"),
    priorityClassName=val(STRING, 24, check="dns-subdomain"),
    priority=opt(INT32, 25),
    preemptionPolicy=opt(STRING, 31, check="not-empty", enum="PreemptLowerPriority Never"),
    dnsConfig=opt(POD_DNS_CONFIG, 26, go="DNSConfig"),
    readinessGates=val(ListType(POD_READINESS_GATE), 28),
    runtimeClassName=opt(STRING, 29, check="dns-subdomain"),
    overhead=val(RESOURCE_LIST, 32),
    enableServiceLinks=opt(BOOL, 30, default=True),
    topologySpreadConstraints=val(
        ListType(TOPOLOGY_SPREAD_CONSTRAINT), 33, merge="topologyKey", keys="topologyKey whenUnsatisfiable"
    ),
    os=opt(POD_OS, 36, go="OS"),
    schedulingGates=val(ListType(POD_SCHEDULING_GATE), 38, merge="name"),
    resourceClaims=val(ListType(POD_RESOURCE_CLAIM), 39, merge="name", strategy="merge,retainKeys"),
    resources=opt(RESOURCE_REQUIREMENTS, 40),
    hostnameOverride=opt(STRING, 41, check="dns-subdomain"),
    schedulingGroup=opt(POD_SCHEDULING_GROUP, 43, gated=True),
    serviceAccount=val(STRING, 9, go="DeprecatedServiceAccount"),
    hostNetwork=val(BOOL, 11),
    hostPID=val(BOOL, 12),
    hostIPC=val(BOOL, 13),
    shareProcessNamespace=opt(BOOL, 27),
    hostUsers=opt(BOOL, 37),
)

POD_SPEC = filling(POD_SPEC, service_account)
