"""The Go types that upstream's messages name, where the shape of a row does not give them.

`_NAMED` has the fields with a type of their own in `k8s.io/api` and apimachinery of Kubernetes 1.36.
"""

from corelane.embedded.apiserver.schema.notation import ListType, MapType, ObjectType, Shape

_NAMED = {
    "[]v1.Capability": "Capabilities.add Capabilities.drop",
    "[]v1.FinalizerName": "NamespaceSpec.finalizers",
    "[]v1.PersistentVolumeAccessMode": (
        "PersistentVolumeClaimSpec.accessModes PersistentVolumeClaimStatus.accessModes "
        "PersistentVolumeSpec.accessModes"
    ),
    "[]v1.UniqueVolumeName": "NodeStatus.volumesInUse",
    "map[string]v1.Time": "PodDisruptionBudgetStatus.disruptedPods",
    "map[v1.ResourceName]v1.ClaimResourceStatus": "PersistentVolumeClaimStatus.allocatedResourceStatuses",
    "types.UID": (
        "ConfigMapNodeConfigSource.uid ObjectMeta.uid ObjectReference.uid OwnerReference.uid "
        "Preconditions.uid StatusDetails.uid"
    ),
    "v1.AppArmorProfileType": "AppArmorProfile.type",
    "v1.AzureDataDiskCachingMode": "AzureDiskVolumeSource.cachingMode",
    "v1.AzureDataDiskKind": "AzureDiskVolumeSource.kind",
    "v1.CauseType": "StatusCause.reason",
    "v1.ConditionStatus": (
        "Condition.status NamespaceCondition.status NodeCondition.status "
        "PersistentVolumeClaimCondition.status PodCondition.status"
    ),
    "v1.ContainerRestartPolicy": "Container.restartPolicy EphemeralContainer.restartPolicy",
    "v1.ContainerRestartRuleAction": "ContainerRestartRule.action",
    "v1.ContainerRestartRuleOnExitCodesOperator": "ContainerRestartRuleOnExitCodes.operator",
    "v1.CoordinatedLeaseStrategy": "LeaseSpec.strategy",
    "v1.DNSPolicy": "PodSpec.dnsPolicy",
    "v1.DeletionPropagation": "DeleteOptions.propagationPolicy",
    "v1.HostPathType": "HostPathVolumeSource.type",
    "v1.LabelSelectorOperator": "LabelSelectorRequirement.operator",
    "v1.ManagedFieldsOperationType": "ManagedFieldsEntry.operation",
    "v1.MountPropagationMode": "VolumeMount.mountPropagation",
    "v1.NamespaceConditionType": "NamespaceCondition.type",
    "v1.NamespacePhase": "NamespaceStatus.phase",
    "v1.NodeAddressType": "NodeAddress.type",
    "v1.NodeConditionType": "NodeCondition.type",
    "v1.NodeInclusionPolicy": (
        "TopologySpreadConstraint.nodeAffinityPolicy TopologySpreadConstraint.nodeTaintsPolicy"
    ),
    "v1.NodePhase": "NodeStatus.phase",
    "v1.NodeSelectorOperator": "NodeSelectorRequirement.operator",
    "v1.OSName": "PodOS.name",
    "v1.PersistentVolumeClaimConditionType": "PersistentVolumeClaimCondition.type",
    "v1.PersistentVolumeClaimModifyVolumeStatus": "ModifyVolumeStatus.status",
    "v1.PersistentVolumeClaimPhase": "PersistentVolumeClaimStatus.phase",
    "v1.PersistentVolumeMode": "PersistentVolumeClaimSpec.volumeMode PersistentVolumeSpec.volumeMode",
    "v1.PersistentVolumePhase": "PersistentVolumeStatus.phase",
    "v1.PersistentVolumeReclaimPolicy": (
        "PersistentVolumeSpec.persistentVolumeReclaimPolicy StorageClass.reclaimPolicy"
    ),
    "v1.PodConditionType": "PodCondition.type PodReadinessGate.conditionType",
    "v1.PodFSGroupChangePolicy": "PodSecurityContext.fsGroupChangePolicy",
    "v1.PodPhase": "PodStatus.phase",
    "v1.PodQOSClass": "PodStatus.qosClass",
    "v1.PodResizeStatus": "PodStatus.resize",
    "v1.PodSELinuxChangePolicy": "PodSecurityContext.seLinuxChangePolicy",
    "v1.PreemptionPolicy": "PodSpec.preemptionPolicy PriorityClass.preemptionPolicy",
    "v1.ProcMountType": "SecurityContext.procMount",
    "v1.Protocol": "ContainerPort.protocol",
    "v1.PullPolicy": (
        "Container.imagePullPolicy EphemeralContainer.imagePullPolicy ImageVolumeSource.pullPolicy"
    ),
    "v1.RecursiveReadOnlyMode": "VolumeMount.recursiveReadOnly VolumeMountStatus.recursiveReadOnly",
    "v1.ResourceHealthStatus": "ResourceHealth.health",
    "v1.ResourceID": "ResourceHealth.resourceID",
    "v1.ResourceList": (
        "ContainerStatus.allocatedResources NodeStatus.allocatable NodeStatus.capacity "
        "PersistentVolumeClaimStatus.allocatedResources PersistentVolumeClaimStatus.capacity "
        "PersistentVolumeSpec.capacity PodSpec.overhead PodStatus.allocatedResources "
        "ResourceRequirements.limits ResourceRequirements.requests VolumeResourceRequirements.limits "
        "VolumeResourceRequirements.requests"
    ),
    "v1.ResourceName": "ContainerResizePolicy.resourceName ResourceStatus.name",
    "v1.ResourceResizeRestartPolicy": "ContainerResizePolicy.restartPolicy",
    "v1.RestartPolicy": "PodSpec.restartPolicy",
    "v1.SeccompProfileType": "SeccompProfile.type",
    "v1.SecretType": "Secret.type",
    "v1.Signal": "ContainerStatus.stopSignal Lifecycle.stopSignal",
    "v1.StatusReason": "Status.reason",
    "v1.StorageMedium": "EmptyDirVolumeSource.medium",
    "v1.SupplementalGroupsPolicy": "PodSecurityContext.supplementalGroupsPolicy",
    "v1.TaintEffect": "Taint.effect Toleration.effect",
    "v1.TerminationMessagePolicy": (
        "Container.terminationMessagePolicy EphemeralContainer.terminationMessagePolicy"
    ),
    "v1.TolerationOperator": "Toleration.operator",
    "v1.URIScheme": "HTTPGetAction.scheme",
    "v1.UnhealthyPodEvictionPolicyType": "PodDisruptionBudgetSpec.unhealthyPodEvictionPolicy",
    "v1.UniqueVolumeName": "AttachedVolume.name",
    "v1.UnsatisfiableConstraintAction": "TopologySpreadConstraint.whenUnsatisfiable",
    "v1.VolumeBindingMode": "StorageClass.volumeBindingMode",
}
# Fields that Go has in a type of its own inside the record; JSON shows them in the record.
_INLINED = {
    "LocalObjectReference": (
        "ConfigMapEnvSource.name ConfigMapKeySelector.name ConfigMapProjection.name "
        "ConfigMapVolumeSource.name SecretEnvSource.name SecretKeySelector.name SecretProjection.name"
    ),
    "EphemeralContainerCommon": "EphemeralContainer.* -EphemeralContainer.targetContainerName",
    "PersistentVolumeSource": (
        "PersistentVolumeSpec.* -PersistentVolumeSpec.capacity -PersistentVolumeSpec.accessModes "
        "-PersistentVolumeSpec.claimRef -PersistentVolumeSpec.persistentVolumeReclaimPolicy "
        "-PersistentVolumeSpec.storageClassName -PersistentVolumeSpec.mountOptions "
        "-PersistentVolumeSpec.volumeMode -PersistentVolumeSpec.nodeAffinity "
        "-PersistentVolumeSpec.volumeAttributesClassName"
    ),
    "ProbeHandler": "Probe.exec Probe.httpGet Probe.tcpSocket Probe.grpc",
    "VolumeSource": "Volume.* -Volume.name",
}
_INLINED_BY_FIELD = {field: name for name, fields in _INLINED.items() for field in fields.split()}
# Fields in the order in which Go writes them, where that is not the order of the rows.
_WRITTEN = {
    "NodeSpec": "podCIDR podCIDRs providerID unschedulable taints configSource externalID",
    "PodSecurityContext": (
        "seLinuxOptions windowsOptions runAsUser runAsGroup runAsNonRoot supplementalGroups "
        "supplementalGroupsPolicy fsGroup sysctls fsGroupChangePolicy seccompProfile appArmorProfile "
        "seLinuxChangePolicy"
    ),
    "PodSpec": (
        "volumes initContainers containers ephemeralContainers restartPolicy terminationGracePeriodSeconds "
        "activeDeadlineSeconds dnsPolicy nodeSelector serviceAccountName serviceAccount "
        "automountServiceAccountToken nodeName hostNetwork hostPID hostIPC shareProcessNamespace "
        "securityContext imagePullSecrets hostname subdomain affinity schedulerName tolerations hostAliases "
        "priorityClassName priority dnsConfig readinessGates runtimeClassName enableServiceLinks "
        "preemptionPolicy overhead topologySpreadConstraints setHostnameAsFQDN os hostUsers schedulingGates "
        "resourceClaims resources hostnameOverride schedulingGroup"
    ),
    "PodStatus": (
        "observedGeneration phase conditions message reason nominatedNodeName hostIP hostIPs podIP podIPs "
        "startTime initContainerStatuses containerStatuses qosClass ephemeralContainerStatuses resize "
        "resourceClaimStatuses extendedResourceClaimStatus allocatedResources resources "
        "nodeAllocatableResourceClaimStatuses"
    ),
}
_BY_FIELD = {field: name for name, fields in _NAMED.items() for field in fields.split()}
# What Go has read before its own types get to see a value.
_READ_AS = {
    "bytes": "[]uint8",
    "int-or-string": "int32",
    "microtime": "string",
    "text-or-null": "string",
    "time": "string",
}
_OWN = {
    "amount": "resource.Quantity",
    "int-or-string": "intstr.IntOrString",
    "microtime": "v1.MicroTime",
    "quantity": "resource.Quantity",
    "raw": "v1.FieldsV1",
    "time": "v1.Time",
}


def name(shape: Shape, record: str = "", field: str = "", depth: int = 0) -> str:
    """Return the type of what is `depth` lists and maps inside a field, as Go's messages name it."""
    declared = _BY_FIELD.get(f"{record}.{field}", "")
    for _ in range(depth):
        declared = declared[2:] if declared.startswith("[]") else ""
    return declared or _structural(shape)


def inlined(record: str, field: str) -> str:
    """Return the type inside a record in which Go has a field, "" where the record itself has it."""
    place = f"{record}.{field}"
    if f"-{place}" in _INLINED_BY_FIELD:
        return ""
    return _INLINED_BY_FIELD.get(place) or _INLINED_BY_FIELD.get(f"{record}.*", "")


def written_order(record: ObjectType) -> tuple[str, ...]:
    """Return the names of a record's fields in the order in which Go writes them."""
    return tuple(_WRITTEN[record.name].split()) if record.name in _WRITTEN else tuple(record.fields)


def _structural(shape: Shape) -> str:
    if isinstance(shape, ListType):
        return f"[]{_inner(shape.item)}"
    if isinstance(shape, MapType):
        return f"map[string]{_inner(shape.value)}"
    if isinstance(shape, ObjectType):
        return f"v1.{shape.name}"
    return _READ_AS.get(shape.name, shape.name)


def _inner(shape: Shape) -> str:
    return _OWN.get(getattr(shape, "name", "")) or _structural(shape)
