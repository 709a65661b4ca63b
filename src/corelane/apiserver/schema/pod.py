"""A pod's specification."""

from corelane.apiserver.schema.container import (
    APP_ARMOR_PROFILE,
    CONTAINER,
    EPHEMERAL_CONTAINER,
    RESOURCE_REQUIREMENTS,
    SE_LINUX_OPTIONS,
    SECCOMP_PROFILE,
    WINDOWS_SECURITY_CONTEXT_OPTIONS,
)
from corelane.apiserver.schema.fillers import service_account
from corelane.apiserver.schema.meta import LABEL_SELECTOR
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
from corelane.apiserver.schema.volumes import LOCAL_OBJECT_REFERENCE, VOLUME

SYSCTL = record(
    "Sysctl",
    name=req(STRING),
    value=req(STRING),
)

POD_SECURITY_CONTEXT = record(
    "PodSecurityContext",
    seLinuxOptions=opt(SE_LINUX_OPTIONS, go="SELinuxOptions"),
    windowsOptions=opt(WINDOWS_SECURITY_CONTEXT_OPTIONS),
    runAsUser=opt(INT64),
    runAsGroup=opt(INT64),
    runAsNonRoot=opt(BOOL),
    supplementalGroups=val(List(INT64)),
    supplementalGroupsPolicy=opt(STRING),
    fsGroup=opt(INT64, go="FSGroup"),
    fsGroupChangePolicy=opt(STRING, go="FSGroupChangePolicy"),
    sysctls=val(List(SYSCTL)),
    seccompProfile=opt(SECCOMP_PROFILE),
    appArmorProfile=opt(APP_ARMOR_PROFILE),
    seLinuxChangePolicy=opt(STRING, go="SELinuxChangePolicy"),
)

NODE_SELECTOR_REQUIREMENT = record(
    "NodeSelectorRequirement",
    key=req(STRING),
    operator=req(STRING),
    values=val(List(STRING)),
)

NODE_SELECTOR_TERM = record(
    "NodeSelectorTerm",
    matchExpressions=val(List(NODE_SELECTOR_REQUIREMENT)),
    matchFields=val(List(NODE_SELECTOR_REQUIREMENT)),
)

NODE_SELECTOR = record(
    "NodeSelector",
    nodeSelectorTerms=req(List(NODE_SELECTOR_TERM)),
)

PREFERRED_SCHEDULING_TERM = record(
    "PreferredSchedulingTerm",
    weight=req(INT32),
    preference=req(NODE_SELECTOR_TERM),
)

NODE_AFFINITY = record(
    "NodeAffinity",
    requiredDuringSchedulingIgnoredDuringExecution=opt(NODE_SELECTOR),
    preferredDuringSchedulingIgnoredDuringExecution=val(List(PREFERRED_SCHEDULING_TERM)),
)

POD_AFFINITY_TERM = record(
    "PodAffinityTerm",
    labelSelector=opt(LABEL_SELECTOR),
    namespaces=val(List(STRING)),
    topologyKey=req(STRING),
    namespaceSelector=opt(LABEL_SELECTOR),
    matchLabelKeys=val(List(STRING)),
    mismatchLabelKeys=val(List(STRING)),
)

WEIGHTED_POD_AFFINITY_TERM = record(
    "WeightedPodAffinityTerm",
    weight=req(INT32),
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
    key=val(STRING),
    operator=val(STRING),
    value=val(STRING),
    effect=val(STRING),
    tolerationSeconds=opt(INT64),
)

HOST_ALIAS = record(
    "HostAlias",
    ip=req(STRING, go="IP"),
    hostnames=val(List(STRING)),
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
    conditionType=req(STRING),
)

TOPOLOGY_SPREAD_CONSTRAINT = record(
    "TopologySpreadConstraint",
    maxSkew=req(INT32),
    topologyKey=req(STRING),
    whenUnsatisfiable=req(STRING),
    labelSelector=opt(LABEL_SELECTOR),
    minDomains=opt(INT32),
    nodeAffinityPolicy=opt(STRING),
    nodeTaintsPolicy=opt(STRING),
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
    volumes=val(List(VOLUME), merge="name", strategy="merge,retainKeys"),
    initContainers=val(List(CONTAINER), merge="name"),
    containers=req(List(CONTAINER), merge="name"),
    ephemeralContainers=val(List(EPHEMERAL_CONTAINER), merge="name"),
    restartPolicy=val(STRING, default="Always"),
    terminationGracePeriodSeconds=opt(INT64, default=30),
    activeDeadlineSeconds=opt(INT64),
    dnsPolicy=val(STRING, go="DNSPolicy", default="ClusterFirst"),
    nodeSelector=val(Map(STRING), atomic=True),
    serviceAccountName=val(STRING),
    automountServiceAccountToken=opt(BOOL),
    nodeName=val(STRING),
    securityContext=opt(POD_SECURITY_CONTEXT, default={}),
    imagePullSecrets=val(List(LOCAL_OBJECT_REFERENCE), merge="name"),
    hostname=val(STRING),
    subdomain=val(STRING),
    setHostnameAsFQDN=opt(BOOL),
    affinity=opt(AFFINITY),
    schedulerName=val(STRING, default="default-scheduler"),
    tolerations=val(List(TOLERATION)),
    hostAliases=val(List(HOST_ALIAS), merge="ip"),
    priorityClassName=val(STRING),
    priority=opt(INT32),
    preemptionPolicy=opt(STRING),
    dnsConfig=opt(POD_DNS_CONFIG, go="DNSConfig"),
    readinessGates=val(List(POD_READINESS_GATE)),
    runtimeClassName=opt(STRING),
    overhead=val(RESOURCE_LIST),
    enableServiceLinks=opt(BOOL, default=True),
    topologySpreadConstraints=val(
        List(TOPOLOGY_SPREAD_CONSTRAINT),
        merge="topologyKey",
        keys=(
            "topologyKey",
            "whenUnsatisfiable",
        ),
    ),
    os=opt(POD_OS, go="OS"),
    schedulingGates=val(List(POD_SCHEDULING_GATE), merge="name"),
    resourceClaims=val(List(POD_RESOURCE_CLAIM), merge="name", strategy="merge,retainKeys"),
    resources=opt(RESOURCE_REQUIREMENTS),
    hostnameOverride=opt(STRING),
    schedulingGroup=opt(POD_SCHEDULING_GROUP, gated=True),
    serviceAccount=val(STRING, go="DeprecatedServiceAccount"),
    hostNetwork=val(BOOL),
    hostPID=val(BOOL),
    hostIPC=val(BOOL),
    shareProcessNamespace=opt(BOOL),
    hostUsers=opt(BOOL),
)

POD_SPEC = filling(POD_SPEC, service_account)
