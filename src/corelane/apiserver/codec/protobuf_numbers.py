"""Field numbers of the built-in kinds in protobuf, by schema: facts of kubernetes' `generated.proto` (1.36).

A number with dots is the way through messages that JSON has no name for: upstream inlines their fields.
"""

NUMBERS: dict[str, str] = {
    "io.k8s.api.coordination.v1.Lease": "metadata=1 spec=2",
    "io.k8s.api.coordination.v1.LeaseSpec": (
        "holderIdentity=1 leaseDurationSeconds=2 acquireTime=3 renewTime=4 leaseTransitions=5 strategy=6 "
        "preferredHolder=7"
    ),
    "io.k8s.api.core.v1.AWSElasticBlockStoreVolumeSource": "volumeID=1 fsType=2 partition=3 readOnly=4",
    "io.k8s.api.core.v1.Affinity": "nodeAffinity=1 podAffinity=2 podAntiAffinity=3",
    "io.k8s.api.core.v1.AppArmorProfile": "type=1 localhostProfile=2",
    "io.k8s.api.core.v1.AttachedVolume": "name=1 devicePath=2",
    "io.k8s.api.core.v1.AzureDiskVolumeSource": (
        "diskName=1 diskURI=2 cachingMode=3 fsType=4 readOnly=5 kind=6"
    ),
    "io.k8s.api.core.v1.AzureFileVolumeSource": "secretName=1 shareName=2 readOnly=3",
    "io.k8s.api.core.v1.Binding": "metadata=1 target=2",
    "io.k8s.api.core.v1.CSIVolumeSource": (
        "driver=1 readOnly=2 fsType=3 volumeAttributes=4 nodePublishSecretRef=5"
    ),
    "io.k8s.api.core.v1.Capabilities": "add=1 drop=2",
    "io.k8s.api.core.v1.CephFSVolumeSource": "monitors=1 path=2 user=3 secretFile=4 secretRef=5 readOnly=6",
    "io.k8s.api.core.v1.CinderVolumeSource": "volumeID=1 fsType=2 readOnly=3 secretRef=4",
    "io.k8s.api.core.v1.ClusterTrustBundleProjection": (
        "name=1 signerName=2 labelSelector=3 optional=5 path=4"
    ),
    "io.k8s.api.core.v1.ConfigMap": "metadata=1 immutable=4 data=2 binaryData=3",
    "io.k8s.api.core.v1.ConfigMapEnvSource": "name=1.1 optional=2",
    "io.k8s.api.core.v1.ConfigMapKeySelector": "name=1.1 key=2 optional=3",
    "io.k8s.api.core.v1.ConfigMapNodeConfigSource": (
        "namespace=1 name=2 uid=3 resourceVersion=4 kubeletConfigKey=5"
    ),
    "io.k8s.api.core.v1.ConfigMapProjection": "name=1.1 items=2 optional=4",
    "io.k8s.api.core.v1.ConfigMapVolumeSource": "name=1.1 items=2 defaultMode=3 optional=4",
    "io.k8s.api.core.v1.Container": (
        "name=1 image=2 command=3 args=4 workingDir=5 ports=6 envFrom=19 env=7 resources=8 resizePolicy=23 "
        "restartPolicy=24 restartPolicyRules=25 volumeMounts=9 volumeDevices=21 livenessProbe=10 "
        "readinessProbe=11 startupProbe=22 lifecycle=12 terminationMessagePath=13 "
        "terminationMessagePolicy=20 imagePullPolicy=14 securityContext=15 stdin=16 stdinOnce=17 tty=18"
    ),
    "io.k8s.api.core.v1.ContainerExtendedResourceRequest": "containerName=1 resourceName=2 requestName=3",
    "io.k8s.api.core.v1.ContainerImage": "names=1 sizeBytes=2",
    "io.k8s.api.core.v1.ContainerPort": "name=1 hostPort=2 containerPort=3 protocol=4 hostIP=5",
    "io.k8s.api.core.v1.ContainerResizePolicy": "resourceName=1 restartPolicy=2",
    "io.k8s.api.core.v1.ContainerRestartRule": "action=1 exitCodes=2",
    "io.k8s.api.core.v1.ContainerRestartRuleOnExitCodes": "operator=1 values=2",
    "io.k8s.api.core.v1.ContainerState": "waiting=1 running=2 terminated=3",
    "io.k8s.api.core.v1.ContainerStateRunning": "startedAt=1",
    "io.k8s.api.core.v1.ContainerStateTerminated": (
        "exitCode=1 signal=2 reason=3 message=4 startedAt=5 finishedAt=6 containerID=7"
    ),
    "io.k8s.api.core.v1.ContainerStateWaiting": "reason=1 message=2",
    "io.k8s.api.core.v1.ContainerStatus": (
        "name=1 state=2 lastState=3 ready=4 restartCount=5 image=6 imageID=7 containerID=8 started=9 "
        "allocatedResources=10 resources=11 volumeMounts=12 user=13 allocatedResourcesStatus=14 "
        "stopSignal=15"
    ),
    "io.k8s.api.core.v1.ContainerUser": "linux=1",
    "io.k8s.api.core.v1.DaemonEndpoint": "Port=1",
    "io.k8s.api.core.v1.DownwardAPIProjection": "items=1",
    "io.k8s.api.core.v1.DownwardAPIVolumeFile": "path=1 fieldRef=2 resourceFieldRef=3 mode=4",
    "io.k8s.api.core.v1.DownwardAPIVolumeSource": "items=1 defaultMode=2",
    "io.k8s.api.core.v1.EmptyDirVolumeSource": "medium=1 sizeLimit=2",
    "io.k8s.api.core.v1.EnvFromSource": "prefix=1 configMapRef=2 secretRef=3",
    "io.k8s.api.core.v1.EnvVar": "name=1 value=2 valueFrom=3",
    "io.k8s.api.core.v1.EnvVarSource": (
        "fieldRef=1 resourceFieldRef=2 configMapKeyRef=3 secretKeyRef=4 fileKeyRef=5"
    ),
    "io.k8s.api.core.v1.EphemeralContainer": (
        "name=1.1 image=1.2 command=1.3 args=1.4 workingDir=1.5 ports=1.6 envFrom=1.19 env=1.7 "
        "resources=1.8 resizePolicy=1.23 restartPolicy=1.24 restartPolicyRules=1.25 volumeMounts=1.9 "
        "volumeDevices=1.21 livenessProbe=1.10 readinessProbe=1.11 startupProbe=1.22 lifecycle=1.12 "
        "terminationMessagePath=1.13 terminationMessagePolicy=1.20 imagePullPolicy=1.14 "
        "securityContext=1.15 stdin=1.16 stdinOnce=1.17 tty=1.18 targetContainerName=2"
    ),
    "io.k8s.api.core.v1.EphemeralVolumeSource": "volumeClaimTemplate=1",
    "io.k8s.api.core.v1.Event": (
        "metadata=1 involvedObject=2 reason=3 message=4 source=5 firstTimestamp=6 lastTimestamp=7 count=8 "
        "type=9 eventTime=10 series=11 action=12 related=13 reportingComponent=14 reportingInstance=15"
    ),
    "io.k8s.api.core.v1.EventSeries": "count=1 lastObservedTime=2",
    "io.k8s.api.core.v1.EventSource": "component=1 host=2",
    "io.k8s.api.core.v1.ExecAction": "command=1",
    "io.k8s.api.core.v1.FCVolumeSource": "targetWWNs=1 lun=2 fsType=3 readOnly=4 wwids=5",
    "io.k8s.api.core.v1.FileKeySelector": "volumeName=1 path=2 key=3 optional=4",
    "io.k8s.api.core.v1.FlexVolumeSource": "driver=1 fsType=2 secretRef=3 readOnly=4 options=5",
    "io.k8s.api.core.v1.FlockerVolumeSource": "datasetName=1 datasetUUID=2",
    "io.k8s.api.core.v1.GCEPersistentDiskVolumeSource": "pdName=1 fsType=2 partition=3 readOnly=4",
    "io.k8s.api.core.v1.GRPCAction": "port=1 service=2",
    "io.k8s.api.core.v1.GitRepoVolumeSource": "repository=1 revision=2 directory=3",
    "io.k8s.api.core.v1.GlusterfsVolumeSource": "endpoints=1 path=2 readOnly=3",
    "io.k8s.api.core.v1.HTTPGetAction": "path=1 port=2 host=3 scheme=4 httpHeaders=5",
    "io.k8s.api.core.v1.HTTPHeader": "name=1 value=2",
    "io.k8s.api.core.v1.HostAlias": "ip=1 hostnames=2",
    "io.k8s.api.core.v1.HostIP": "ip=1",
    "io.k8s.api.core.v1.HostPathVolumeSource": "path=1 type=2",
    "io.k8s.api.core.v1.ISCSIVolumeSource": (
        "targetPortal=1 iqn=2 lun=3 iscsiInterface=4 fsType=5 readOnly=6 portals=7 chapAuthDiscovery=8 "
        "chapAuthSession=11 secretRef=10 initiatorName=12"
    ),
    "io.k8s.api.core.v1.ImageVolumeSource": "reference=1 pullPolicy=2",
    "io.k8s.api.core.v1.ImageVolumeStatus": "imageRef=1",
    "io.k8s.api.core.v1.KeyToPath": "key=1 path=2 mode=3",
    "io.k8s.api.core.v1.Lifecycle": "postStart=1 preStop=2 stopSignal=3",
    "io.k8s.api.core.v1.LifecycleHandler": "exec=1 httpGet=2 tcpSocket=3 sleep=4",
    "io.k8s.api.core.v1.LinuxContainerUser": "uid=1 gid=2 supplementalGroups=3",
    "io.k8s.api.core.v1.LocalObjectReference": "name=1",
    "io.k8s.api.core.v1.NFSVolumeSource": "server=1 path=2 readOnly=3",
    "io.k8s.api.core.v1.Namespace": "metadata=1 spec=2 status=3",
    "io.k8s.api.core.v1.NamespaceCondition": "type=1 status=2 lastTransitionTime=4 reason=5 message=6",
    "io.k8s.api.core.v1.NamespaceSpec": "finalizers=1",
    "io.k8s.api.core.v1.NamespaceStatus": "phase=1 conditions=2",
    "io.k8s.api.core.v1.Node": "metadata=1 spec=2 status=3",
    "io.k8s.api.core.v1.NodeAddress": "type=1 address=2",
    "io.k8s.api.core.v1.NodeAffinity": (
        "requiredDuringSchedulingIgnoredDuringExecution=1 preferredDuringSchedulingIgnoredDuringExecution=2"
    ),
    "io.k8s.api.core.v1.NodeAllocatableResourceClaimStatus": "resourceClaimName=1 containers=2 resources=3",
    "io.k8s.api.core.v1.NodeCondition": (
        "type=1 status=2 lastHeartbeatTime=3 lastTransitionTime=4 reason=5 message=6"
    ),
    "io.k8s.api.core.v1.NodeConfigSource": "configMap=2",
    "io.k8s.api.core.v1.NodeConfigStatus": "assigned=1 active=2 lastKnownGood=3 error=4",
    "io.k8s.api.core.v1.NodeDaemonEndpoints": "kubeletEndpoint=1",
    "io.k8s.api.core.v1.NodeFeatures": "supplementalGroupsPolicy=1",
    "io.k8s.api.core.v1.NodeRuntimeHandler": "name=1 features=2",
    "io.k8s.api.core.v1.NodeRuntimeHandlerFeatures": "recursiveReadOnlyMounts=1 userNamespaces=2",
    "io.k8s.api.core.v1.NodeSelector": "nodeSelectorTerms=1",
    "io.k8s.api.core.v1.NodeSelectorRequirement": "key=1 operator=2 values=3",
    "io.k8s.api.core.v1.NodeSelectorTerm": "matchExpressions=1 matchFields=2",
    "io.k8s.api.core.v1.NodeSpec": (
        "podCIDRs=7 providerID=3 unschedulable=4 taints=5 configSource=6 externalID=2 podCIDR=1"
    ),
    "io.k8s.api.core.v1.NodeStatus": (
        "capacity=1 allocatable=2 phase=3 conditions=4 addresses=5 daemonEndpoints=6 nodeInfo=7 images=8 "
        "volumesInUse=9 volumesAttached=10 config=11 runtimeHandlers=12 features=13 declaredFeatures=14"
    ),
    "io.k8s.api.core.v1.NodeSwapStatus": "capacity=1",
    "io.k8s.api.core.v1.NodeSystemInfo": (
        "machineID=1 systemUUID=2 bootID=3 kernelVersion=4 osImage=5 containerRuntimeVersion=6 "
        "kubeletVersion=7 kubeProxyVersion=8 operatingSystem=9 architecture=10 swap=11"
    ),
    "io.k8s.api.core.v1.ObjectFieldSelector": "apiVersion=1 fieldPath=2",
    "io.k8s.api.core.v1.ObjectReference": (
        "kind=1 namespace=2 name=3 uid=4 apiVersion=5 resourceVersion=6 fieldPath=7"
    ),
    "io.k8s.api.core.v1.PersistentVolumeClaimSpec": (
        "accessModes=1 selector=4 resources=2 volumeName=3 storageClassName=5 volumeMode=6 dataSource=7 "
        "dataSourceRef=8 volumeAttributesClassName=9"
    ),
    "io.k8s.api.core.v1.PersistentVolumeClaimTemplate": "metadata=1 spec=2",
    "io.k8s.api.core.v1.PersistentVolumeClaimVolumeSource": "claimName=1 readOnly=2",
    "io.k8s.api.core.v1.PhotonPersistentDiskVolumeSource": "pdID=1 fsType=2",
    "io.k8s.api.core.v1.Pod": "metadata=1 spec=2 status=3",
    "io.k8s.api.core.v1.PodAffinity": (
        "requiredDuringSchedulingIgnoredDuringExecution=1 preferredDuringSchedulingIgnoredDuringExecution=2"
    ),
    "io.k8s.api.core.v1.PodAffinityTerm": (
        "labelSelector=1 namespaces=2 topologyKey=3 namespaceSelector=4 matchLabelKeys=5 mismatchLabelKeys=6"
    ),
    "io.k8s.api.core.v1.PodAntiAffinity": (
        "requiredDuringSchedulingIgnoredDuringExecution=1 preferredDuringSchedulingIgnoredDuringExecution=2"
    ),
    "io.k8s.api.core.v1.PodCertificateProjection": (
        "signerName=1 keyType=2 maxExpirationSeconds=3 credentialBundlePath=4 keyPath=5 "
        "certificateChainPath=6 userAnnotations=7"
    ),
    "io.k8s.api.core.v1.PodCondition": (
        "type=1 observedGeneration=7 status=2 lastProbeTime=3 lastTransitionTime=4 reason=5 message=6"
    ),
    "io.k8s.api.core.v1.PodDNSConfig": "nameservers=1 searches=2 options=3",
    "io.k8s.api.core.v1.PodDNSConfigOption": "name=1 value=2",
    "io.k8s.api.core.v1.PodExtendedResourceClaimStatus": "requestMappings=1 resourceClaimName=2",
    "io.k8s.api.core.v1.PodIP": "ip=1",
    "io.k8s.api.core.v1.PodOS": "name=1",
    "io.k8s.api.core.v1.PodReadinessGate": "conditionType=1",
    "io.k8s.api.core.v1.PodResourceClaim": "name=1 resourceClaimName=3 resourceClaimTemplateName=4",
    "io.k8s.api.core.v1.PodResourceClaimStatus": "name=1 resourceClaimName=2",
    "io.k8s.api.core.v1.PodSchedulingGate": "name=1",
    "io.k8s.api.core.v1.PodSchedulingGroup": "podGroupName=1",
    "io.k8s.api.core.v1.PodSecurityContext": (
        "seLinuxOptions=1 windowsOptions=8 runAsUser=2 runAsGroup=6 runAsNonRoot=3 supplementalGroups=4 "
        "supplementalGroupsPolicy=12 fsGroup=5 fsGroupChangePolicy=9 sysctls=7 seccompProfile=10 "
        "appArmorProfile=11 seLinuxChangePolicy=13"
    ),
    "io.k8s.api.core.v1.PodSpec": (
        "volumes=1 initContainers=20 containers=2 ephemeralContainers=34 restartPolicy=3 "
        "terminationGracePeriodSeconds=4 activeDeadlineSeconds=5 dnsPolicy=6 nodeSelector=7 "
        "serviceAccountName=8 automountServiceAccountToken=21 nodeName=10 securityContext=14 "
        "imagePullSecrets=15 hostname=16 subdomain=17 setHostnameAsFQDN=35 affinity=18 schedulerName=19 "
        "tolerations=22 hostAliases=23 priorityClassName=24 priority=25 preemptionPolicy=31 dnsConfig=26 "
        "readinessGates=28 runtimeClassName=29 overhead=32 enableServiceLinks=30 "
        "topologySpreadConstraints=33 os=36 schedulingGates=38 resourceClaims=39 resources=40 "
        "hostnameOverride=41 schedulingGroup=43 serviceAccount=9 hostNetwork=11 hostPID=12 hostIPC=13 "
        "shareProcessNamespace=27 hostUsers=37"
    ),
    "io.k8s.api.core.v1.PodStatus": (
        "observedGeneration=17 phase=1 conditions=2 message=3 reason=4 nominatedNodeName=11 hostIP=5 "
        "hostIPs=16 podIPs=12 startTime=7 qosClass=9 initContainerStatuses=10 containerStatuses=8 "
        "ephemeralContainerStatuses=13 resize=14 resourceClaimStatuses=15 extendedResourceClaimStatus=18 "
        "allocatedResources=19 resources=20 nodeAllocatableResourceClaimStatuses=21 podIP=6"
    ),
    "io.k8s.api.core.v1.PortworxVolumeSource": "volumeID=1 fsType=2 readOnly=3",
    "io.k8s.api.core.v1.PreferredSchedulingTerm": "weight=1 preference=2",
    "io.k8s.api.core.v1.Probe": (
        "exec=1.1 httpGet=1.2 tcpSocket=1.3 grpc=1.4 initialDelaySeconds=2 timeoutSeconds=3 periodSeconds=4 "
        "successThreshold=5 failureThreshold=6 terminationGracePeriodSeconds=7"
    ),
    "io.k8s.api.core.v1.ProjectedVolumeSource": "sources=1 defaultMode=2",
    "io.k8s.api.core.v1.QuobyteVolumeSource": "registry=1 volume=2 readOnly=3 user=4 group=5 tenant=6",
    "io.k8s.api.core.v1.RBDVolumeSource": (
        "monitors=1 image=2 fsType=3 pool=4 user=5 keyring=6 secretRef=7 readOnly=8"
    ),
    "io.k8s.api.core.v1.ResourceClaim": "name=1 request=2",
    "io.k8s.api.core.v1.ResourceFieldSelector": "containerName=1 resource=2 divisor=3",
    "io.k8s.api.core.v1.ResourceHealth": "resourceID=1 health=2 message=6",
    "io.k8s.api.core.v1.ResourceRequirements": "limits=1 requests=2 claims=3",
    "io.k8s.api.core.v1.ResourceStatus": "name=1 resources=2",
    "io.k8s.api.core.v1.SELinuxOptions": "user=1 role=2 type=3 level=4",
    "io.k8s.api.core.v1.ScaleIOVolumeSource": (
        "gateway=1 system=2 secretRef=3 sslEnabled=4 protectionDomain=5 storagePool=6 storageMode=7 "
        "volumeName=8 fsType=9 readOnly=10"
    ),
    "io.k8s.api.core.v1.SeccompProfile": "type=1 localhostProfile=2",
    "io.k8s.api.core.v1.SecretEnvSource": "name=1.1 optional=2",
    "io.k8s.api.core.v1.SecretKeySelector": "name=1.1 key=2 optional=3",
    "io.k8s.api.core.v1.SecretProjection": "name=1.1 items=2 optional=4",
    "io.k8s.api.core.v1.SecretVolumeSource": "secretName=1 items=2 defaultMode=3 optional=4",
    "io.k8s.api.core.v1.SecurityContext": (
        "capabilities=1 privileged=2 seLinuxOptions=3 windowsOptions=10 runAsUser=4 runAsGroup=8 "
        "runAsNonRoot=5 readOnlyRootFilesystem=6 allowPrivilegeEscalation=7 procMount=9 seccompProfile=11 "
        "appArmorProfile=12"
    ),
    "io.k8s.api.core.v1.ServiceAccountTokenProjection": "audience=1 expirationSeconds=2 path=3",
    "io.k8s.api.core.v1.SleepAction": "seconds=1",
    "io.k8s.api.core.v1.StorageOSVolumeSource": (
        "volumeName=1 volumeNamespace=2 fsType=3 readOnly=4 secretRef=5"
    ),
    "io.k8s.api.core.v1.Sysctl": "name=1 value=2",
    "io.k8s.api.core.v1.TCPSocketAction": "port=1 host=2",
    "io.k8s.api.core.v1.Taint": "key=1 value=2 effect=3 timeAdded=4",
    "io.k8s.api.core.v1.Toleration": "key=1 operator=2 value=3 effect=4 tolerationSeconds=5",
    "io.k8s.api.core.v1.TopologySpreadConstraint": (
        "maxSkew=1 topologyKey=2 whenUnsatisfiable=3 labelSelector=4 minDomains=5 nodeAffinityPolicy=6 "
        "nodeTaintsPolicy=7 matchLabelKeys=8"
    ),
    "io.k8s.api.core.v1.TypedLocalObjectReference": "apiGroup=1 kind=2 name=3",
    "io.k8s.api.core.v1.TypedObjectReference": "apiGroup=1 kind=2 name=3 namespace=4",
    "io.k8s.api.core.v1.Volume": (
        "name=1 hostPath=2.1 emptyDir=2.2 gcePersistentDisk=2.3 awsElasticBlockStore=2.4 gitRepo=2.5 "
        "secret=2.6 nfs=2.7 iscsi=2.8 glusterfs=2.9 persistentVolumeClaim=2.10 rbd=2.11 quobyte=2.21 "
        "flexVolume=2.12 cinder=2.13 cephfs=2.14 flocker=2.15 downwardAPI=2.16 fc=2.17 azureFile=2.18 "
        "configMap=2.19 vsphereVolume=2.20 azureDisk=2.22 photonPersistentDisk=2.23 projected=2.26 "
        "portworxVolume=2.24 scaleIO=2.25 storageos=2.27 csi=2.28 ephemeral=2.29 image=2.30"
    ),
    "io.k8s.api.core.v1.VolumeDevice": "name=1 devicePath=2",
    "io.k8s.api.core.v1.VolumeMount": (
        "name=1 readOnly=2 recursiveReadOnly=7 mountPath=3 subPath=4 mountPropagation=5 subPathExpr=6"
    ),
    "io.k8s.api.core.v1.VolumeMountStatus": (
        "name=1 mountPath=2 readOnly=3 recursiveReadOnly=4 volumeStatus=5"
    ),
    "io.k8s.api.core.v1.VolumeProjection": (
        "secret=1 downwardAPI=2 configMap=3 serviceAccountToken=4 clusterTrustBundle=5 podCertificate=6"
    ),
    "io.k8s.api.core.v1.VolumeResourceRequirements": "limits=1 requests=2",
    "io.k8s.api.core.v1.VolumeStatus": "image=1",
    "io.k8s.api.core.v1.VsphereVirtualDiskVolumeSource": (
        "volumePath=1 fsType=2 storagePolicyName=3 storagePolicyID=4"
    ),
    "io.k8s.api.core.v1.WeightedPodAffinityTerm": "weight=1 podAffinityTerm=2",
    "io.k8s.api.core.v1.WindowsSecurityContextOptions": (
        "gmsaCredentialSpecName=1 gmsaCredentialSpec=2 runAsUserName=3 hostProcess=4"
    ),
    "io.k8s.api.events.v1.Event": (
        "metadata=1 eventTime=2 series=3 reportingController=4 reportingInstance=5 action=6 reason=7 "
        "regarding=8 related=9 note=10 type=11 deprecatedSource=12 deprecatedFirstTimestamp=13 "
        "deprecatedLastTimestamp=14 deprecatedCount=15"
    ),
    "io.k8s.api.events.v1.EventSeries": "count=1 lastObservedTime=2",
    "io.k8s.api.policy.v1.Eviction": "metadata=1 deleteOptions=2",
    "io.k8s.api.scheduling.v1.PriorityClass": (
        "metadata=1 value=2 globalDefault=3 description=4 preemptionPolicy=5"
    ),
    "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions": (
        "gracePeriodSeconds=1 preconditions=2 orphanDependents=3 propagationPolicy=4 dryRun=5 "
        "ignoreStoreReadErrorWithClusterBreakingPotential=6"
    ),
    "io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector": "matchLabels=1 matchExpressions=2",
    "io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelectorRequirement": "key=1 operator=2 values=3",
    "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta": (
        "selfLink=1 resourceVersion=2 remainingItemCount=4 continue=3"
    ),
    "io.k8s.apimachinery.pkg.apis.meta.v1.ManagedFieldsEntry": (
        "manager=1 operation=2 apiVersion=3 time=4 fieldsType=6 fieldsV1=7 subresource=8"
    ),
    "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta": (
        "name=1 generateName=2 namespace=3 selfLink=4 uid=5 resourceVersion=6 generation=7 "
        "creationTimestamp=8 deletionTimestamp=9 deletionGracePeriodSeconds=10 labels=11 annotations=12 "
        "ownerReferences=13 finalizers=14 managedFields=17"
    ),
    "io.k8s.apimachinery.pkg.apis.meta.v1.OwnerReference": (
        "apiVersion=5 kind=1 name=3 uid=4 controller=6 blockOwnerDeletion=7"
    ),
    "io.k8s.apimachinery.pkg.apis.meta.v1.Preconditions": "uid=1 resourceVersion=2",
    "io.k8s.apimachinery.pkg.apis.meta.v1.Status": "metadata=1 status=2 message=3 reason=4 details=5 code=6",
    "io.k8s.apimachinery.pkg.apis.meta.v1.StatusCause": "reason=1 message=2 field=3",
    "io.k8s.apimachinery.pkg.apis.meta.v1.StatusDetails": (
        "name=1 group=2 kind=3 uid=6 causes=4 retryAfterSeconds=5"
    ),
}
