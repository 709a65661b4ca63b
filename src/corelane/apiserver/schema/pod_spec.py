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
from corelane.apiserver.schema.disks import LOCAL_OBJECT_REFERENCE
from corelane.apiserver.schema.notation import (
    BOOL,
    INT32,
    INT64,
    RESOURCE_LIST,
    STRING,
    List,
    Map,
    filling,
    opt,
    record,
    req,
    val,
)
from corelane.apiserver.schema.object_meta import LABEL_SELECTOR
from corelane.apiserver.schema.volume_sources import VOLUME

SYSCTL = record(
    "Sysctl",
    name=req(STRING),
    value=req(STRING),
)

POD_SECURITY_CONTEXT = record(
    "PodSecurityContext",
    "fsGroup runAsUser runAsGroup supplementalGroups @share-process @sysctls fsGroupChangePolicy "
    "seccompProfile windowsOptions appArmorProfile supplementalGroupsPolicy seLinuxChangePolicy",
    seLinuxOptions=opt(SE_LINUX_OPTIONS, go="SELinuxOptions"),
    windowsOptions=opt(WINDOWS_SECURITY_CONTEXT_OPTIONS),
    runAsUser=opt(INT64, check="user-id"),
    runAsGroup=opt(INT64, check="user-id"),
    runAsNonRoot=opt(BOOL),
    supplementalGroups=val(List(INT64), check="group-ids"),
    supplementalGroupsPolicy=opt(STRING, enum="Merge Strict"),
    fsGroup=opt(INT64, go="FSGroup", check="user-id"),
    fsGroupChangePolicy=opt(STRING, go="FSGroupChangePolicy", enum="Always OnRootMismatch"),
    sysctls=val(List(SYSCTL)),
    seccompProfile=opt(SECCOMP_PROFILE),
    appArmorProfile=opt(APP_ARMOR_PROFILE),
    seLinuxChangePolicy=opt(STRING, go="SELinuxChangePolicy", enum="MountOption Recursive"),
)

NODE_SELECTOR_REQUIREMENT = record(
    "NodeSelectorRequirement",
    key=req(STRING),
    operator=req(STRING),
    values=val(List(STRING)),
)

NODE_SELECTOR_TERM = record(
    "NodeSelectorTerm",
    "@node-expressions @node-fields",
    matchExpressions=val(List(NODE_SELECTOR_REQUIREMENT)),
    matchFields=val(List(NODE_SELECTOR_REQUIREMENT)),
)

NODE_SELECTOR = record(
    "NodeSelector",
    "@node-selector-terms nodeSelectorTerms",
    nodeSelectorTerms=req(List(NODE_SELECTOR_TERM)),
)

PREFERRED_SCHEDULING_TERM = record(
    "PreferredSchedulingTerm",
    weight=req(INT32, check="weight!"),
    preference=req(NODE_SELECTOR_TERM),
)

NODE_AFFINITY = record(
    "NodeAffinity",
    requiredDuringSchedulingIgnoredDuringExecution=opt(NODE_SELECTOR),
    preferredDuringSchedulingIgnoredDuringExecution=val(List(PREFERRED_SCHEDULING_TERM)),
)

POD_AFFINITY_TERM = record(
    "PodAffinityTerm",
    "labelSelector namespaceSelector @term-namespaces @term-label-keys @term-topology-key",
    labelSelector=opt(LABEL_SELECTOR),
    namespaces=val(List(STRING)),
    topologyKey=req(STRING),
    namespaceSelector=opt(LABEL_SELECTOR),
    matchLabelKeys=val(List(STRING)),
    mismatchLabelKeys=val(List(STRING)),
)

WEIGHTED_POD_AFFINITY_TERM = record(
    "WeightedPodAffinityTerm",
    weight=req(INT32, check="weight!"),
    podAffinityTerm=req(POD_AFFINITY_TERM),
)

POD_AFFINITY = record(
    "PodAffinity",
    requiredDuringSchedulingIgnoredDuringExecution=val(List(POD_AFFINITY_TERM)),
    preferredDuringSchedulingIgnoredDuringExecution=val(List(WEIGHTED_POD_AFFINITY_TERM)),
)

POD_ANTI_AFFINITY = record(
    "PodAntiAffinity",
    requiredDuringSchedulingIgnoredDuringExecution=val(List(POD_AFFINITY_TERM)),
    preferredDuringSchedulingIgnoredDuringExecution=val(List(WEIGHTED_POD_AFFINITY_TERM)),
)

AFFINITY = record(
    "Affinity",
    nodeAffinity=opt(NODE_AFFINITY),
    podAffinity=opt(POD_AFFINITY),
    podAntiAffinity=opt(POD_ANTI_AFFINITY),
)

TOLERATION = record(
    "Toleration",
    "@toleration",
    key=val(STRING),
    operator=val(STRING),
    value=val(STRING),
    effect=val(STRING),
    tolerationSeconds=opt(INT64),
)

HOST_ALIAS = record(
    "HostAlias",
    ip=req(STRING, go="IP", check="ip!"),
    hostnames=val(List(STRING), check="dns-subdomains"),
)

POD_DNS_CONFIG_OPTION = record(
    "PodDNSConfigOption",
    name=val(STRING),
    value=opt(STRING),
)

POD_DNS_CONFIG = record(
    "PodDNSConfig",
    nameservers=val(List(STRING)),
    searches=val(List(STRING)),
    options=val(List(POD_DNS_CONFIG_OPTION)),
)

POD_READINESS_GATE = record(
    "PodReadinessGate",
    conditionType=req(STRING, check="qualified-name!"),
)

TOPOLOGY_SPREAD_CONSTRAINT = record(
    "TopologySpreadConstraint",
    "maxSkew @spread-topology-key whenUnsatisfiable @spread-repeated @min-domains nodeAffinityPolicy "
    "nodeTaintsPolicy @spread-label-keys labelSelector",
    maxSkew=req(INT32, check="positive!"),
    topologyKey=req(STRING),
    whenUnsatisfiable=req(STRING, enum="DoNotSchedule ScheduleAnyway"),
    labelSelector=opt(LABEL_SELECTOR),
    minDomains=opt(INT32, check="positive"),
    nodeAffinityPolicy=opt(STRING, enum="Honor Ignore"),
    nodeTaintsPolicy=opt(STRING, enum="Honor Ignore"),
    matchLabelKeys=val(List(STRING)),
)

POD_OS = record(
    "PodOS",
    name=req(STRING),
)

POD_SCHEDULING_GATE = record(
    "PodSchedulingGate",
    name=req(STRING),
)

POD_RESOURCE_CLAIM = record(
    "PodResourceClaim",
    name=req(STRING),
    resourceClaimName=opt(STRING),
    resourceClaimTemplateName=opt(STRING),
)

POD_SCHEDULING_GROUP = record(
    "PodSchedulingGroup",
    podGroupName=opt(STRING),
)

POD_SPEC = record(
    "PodSpec",
    "@volumes @resource-claims @containers @init-containers @ephemeral-containers @pod-resources "
    "@host-ports restartPolicy dnsPolicy nodeSelector securityContext affinity @dns-config "
    "readinessGates @scheduling-gates topologySpreadConstraints @host-process @host-users "
    "@hostname-override serviceAccountName nodeName activeDeadlineSeconds hostname subdomain tolerations "
    "hostAliases priorityClassName runtimeClassName preemptionPolicy @overhead @os @file-keys",
    volumes=val(List(VOLUME), merge="name", strategy="merge,retainKeys"),
    initContainers=val(List(CONTAINER), merge="name"),
    containers=req(List(CONTAINER), merge="name"),
    ephemeralContainers=val(List(EPHEMERAL_CONTAINER), merge="name"),
    restartPolicy=val(STRING, default="Always", check="required", enum="Always OnFailure Never"),
    terminationGracePeriodSeconds=opt(INT64, default=30),
    activeDeadlineSeconds=opt(INT64, check="deadline"),
    dnsPolicy=val(
        STRING,
        go="DNSPolicy",
        default="ClusterFirst",
        check="required",
        enum="ClusterFirstWithHostNet ClusterFirst Default None",
    ),
    nodeSelector=val(Map(STRING), atomic=True, check="labels"),
    serviceAccountName=val(STRING, check="dns-subdomain"),
    automountServiceAccountToken=opt(BOOL),
    nodeName=val(STRING, check="dns-subdomain"),
    securityContext=opt(POD_SECURITY_CONTEXT, default={}),
    imagePullSecrets=val(List(LOCAL_OBJECT_REFERENCE), merge="name"),
    hostname=val(STRING, check="dns-label"),
    subdomain=val(STRING, check="dns-label"),
    setHostnameAsFQDN=opt(BOOL),
    affinity=opt(AFFINITY),
    schedulerName=val(STRING, default="default-scheduler"),
    tolerations=val(List(TOLERATION)),
    hostAliases=val(List(HOST_ALIAS), merge="ip"),
    priorityClassName=val(STRING, check="dns-subdomain"),
    priority=opt(INT32),
    preemptionPolicy=opt(STRING, check="not-empty", enum="PreemptLowerPriority Never"),
    dnsConfig=opt(POD_DNS_CONFIG, go="DNSConfig"),
    readinessGates=val(List(POD_READINESS_GATE)),
    runtimeClassName=opt(STRING, check="dns-subdomain"),
    overhead=val(RESOURCE_LIST),
    enableServiceLinks=opt(BOOL, default=True),
    topologySpreadConstraints=val(
        List(TOPOLOGY_SPREAD_CONSTRAINT), merge="topologyKey", keys="topologyKey whenUnsatisfiable"
    ),
    os=opt(POD_OS, go="OS"),
    schedulingGates=val(List(POD_SCHEDULING_GATE), merge="name"),
    resourceClaims=val(List(POD_RESOURCE_CLAIM), merge="name", strategy="merge,retainKeys"),
    resources=opt(RESOURCE_REQUIREMENTS),
    hostnameOverride=opt(STRING, check="dns-subdomain"),
    schedulingGroup=opt(POD_SCHEDULING_GROUP, gated=True),
    serviceAccount=val(STRING, go="DeprecatedServiceAccount"),
    hostNetwork=val(BOOL),
    hostPID=val(BOOL),
    hostIPC=val(BOOL),
    shareProcessNamespace=opt(BOOL),
    hostUsers=opt(BOOL),
)

POD_SPEC = filling(POD_SPEC, service_account)
