"""Containers of a pod: ports, environment, resources, probes, life cycle, security; and a pod's volumes.

Volumes have records of the sources that name objects served here; others are stored as given.
"""

from corelane.embedded.apiserver.schema import notation  # noqa: F401 - for the types that rows here name
from corelane.embedded.apiserver.schema.defaults_and_formats import empty_dir, image_pull_policy
from corelane.embedded.apiserver.schema.notation import Columns, alike, extend, record

record("LocalObjectReference", "name=1", name=Columns(default=""), atomic=True)

record(
    "HostPathVolumeSource",
    "path!=1|required|no-backsteps type?=2",
    type=Columns(
        default="",
        enum=(
            "",
            "BlockDevice",
            "CharDevice",
            "Directory",
            "DirectoryOrCreate",
            "File",
            "FileOrCreate",
            "Socket",
        ),
    ),
)

record("EmptyDirVolumeSource", "medium=1 sizeLimit?:quantity=2")

record("KeyToPath", "key!=1|required path!=2|required|local-path mode?:int32=3|0..511")

record(
    "SecretVolumeSource",
    "secretName=1|required items:[]KeyToPath=2 defaultMode?:int32=3|0..511 optional?:bool=4",
    defaultMode=Columns(default=0o644),
)

record(
    "ObjectFieldSelector", "apiVersion=1 fieldPath!=2|required", apiVersion=Columns(default="v1"), atomic=True
)

record("ResourceFieldSelector", "containerName=1 resource!=2|required divisor+:quantity=3", atomic=True)

record(
    "DownwardAPIVolumeFile",
    "path!=1|required|local-path fieldRef?:ObjectFieldSelector=2 resourceFieldRef?:ResourceFieldSelector=3 "
    "mode?:int32=4|0..511",
)

record(
    "DownwardAPIVolumeSource",
    "items:[]DownwardAPIVolumeFile=1 defaultMode?:int32=2|0..511",
    defaultMode=Columns(default=0o644),
)

record(
    "ConfigMapVolumeSource",
    "name=1.1|required items:[]KeyToPath=2 defaultMode?:int32=3|0..511 optional?:bool=4",
    name=Columns(default=""),
    defaultMode=Columns(default=0o644),
)

record("SecretProjection", "name=1.1 items:[]KeyToPath=2 optional?:bool=4", name=Columns(default=""))

record("DownwardAPIProjection", "items:[]DownwardAPIVolumeFile=1")

alike("SecretProjection", "ConfigMapProjection")

record(
    "ServiceAccountTokenProjection",
    "audience=1 expirationSeconds?:int64=2 path!=3",
    expirationSeconds=Columns(default=3600),
)

record(
    "VolumeProjection",
    "secret?:SecretProjection=1 downwardAPI?:DownwardAPIProjection=2 configMap?:ConfigMapProjection=3 "
    "serviceAccountToken?:ServiceAccountTokenProjection=4",
)

record(
    "ProjectedVolumeSource",
    "sources+:[]VolumeProjection=1 defaultMode?:int32=2|0..511",
    defaultMode=Columns(default=0o644),
)

VOLUME = record(
    "Volume",
    "name!=1|required|dns-label hostPath?:HostPathVolumeSource=2.1 emptyDir?:EmptyDirVolumeSource=2.2 "
    "gcePersistentDisk?:object=2.3 awsElasticBlockStore?:object=2.4 gitRepo?:object=2.5 "
    "secret?:SecretVolumeSource=2.6 nfs?:object=2.7 iscsi?:object=2.8 glusterfs?:object=2.9 "
    "persistentVolumeClaim?:object=2.10 rbd?:object=2.11 quobyte?:object=2.21 flexVolume?:object=2.12 "
    "cinder?:object=2.13 cephfs?:object=2.14 flocker?:object=2.15 "
    "downwardAPI?:DownwardAPIVolumeSource=2.16 fc?:object=2.17 azureFile?:object=2.18 "
    "configMap?:ConfigMapVolumeSource=2.19 vsphereVolume?:object=2.20 azureDisk?:object=2.22 "
    "photonPersistentDisk?:object=2.23 projected?:ProjectedVolumeSource=2.26 portworxVolume?:object=2.24 "
    "scaleIO?:object=2.25 storageos?:object=2.27 csi?:object=2.28 ephemeral?:object=2.29 image?:object=2.30",
    rules="volume-source",
    defaults=(empty_dir,),
)


record(
    "ContainerPort",
    "name=1|port-name hostPort:int32=2|1..65535 containerPort!:int32=3|required|1..65535 protocol=4|required "
    "hostIP=5",
    protocol=Columns(default="TCP", enum="SCTP TCP UDP"),
)

record("ConfigMapEnvSource", "name=1.1|required|generated-name optional?:bool=2", name=Columns(default=""))

alike("ConfigMapEnvSource", "SecretEnvSource")

record(
    "EnvFromSource",
    "prefix=1|env-name configMapRef?:ConfigMapEnvSource=2 secretRef?:SecretEnvSource=3",
    rules="env-from",
)

record(
    "ConfigMapKeySelector",
    "name=1.1|dns-subdomain! key!=2|required|config-key optional?:bool=3",
    name=Columns(default=""),
    atomic=True,
)

alike("ConfigMapKeySelector", "SecretKeySelector")

record(
    "FileKeySelector",
    "volumeName!=1|required|dns-label path!=2|required|no-backsteps key!=3|required|env-name "
    "optional?:bool=4",
    optional=Columns(default=False),
    atomic=True,
)

record(
    "EnvVarSource",
    "fieldRef?:ObjectFieldSelector=1 resourceFieldRef?:ResourceFieldSelector=2 "
    "configMapKeyRef?:ConfigMapKeySelector=3 secretKeyRef?:SecretKeySelector=4 "
    "fileKeyRef?:FileKeySelector=5",
)

record(
    "EnvVar",
    "name!=1|required|env-name value=2 valueFrom?:EnvVarSource=3",
    rules="value-from",
)

record("ResourceClaim", "name!=1|required request=2|dns-label")

record(
    "ResourceRequirements",
    "limits:{}amount=1 requests:{}amount=2 claims:[]ResourceClaim=3",
    rules="container-resources",
    claims=Columns(list="map", keys="name"),
)

record(
    "ContainerResizePolicy",
    "resourceName!=1|required restartPolicy!=2|required",
    resourceName=Columns(enum="cpu memory"),
    restartPolicy=Columns(enum="NotRequired RestartContainer"),
)

record(
    "ContainerRestartRuleOnExitCodes",
    "operator=1|required values:[]int32=2",
    operator=Columns(enum="In NotIn"),
    values=Columns(list="set"),
)

record(
    "ContainerRestartRule",
    "action=1|required exitCodes?:ContainerRestartRuleOnExitCodes=2|required",
    action=Columns(enum="Restart RestartAllContainers"),
)

record(
    "VolumeMount",
    "name!=1|required readOnly:bool=2 recursiveReadOnly?=7 mountPath!=3|required subPath=4 "
    "mountPropagation?=5 subPathExpr=6",
    recursiveReadOnly=Columns(enum="Disabled Enabled IfPossible"),
    mountPropagation=Columns(enum="Bidirectional HostToContainer None"),
)

record("VolumeDevice", "name!=1|required devicePath!=2|required")

record("ExecAction", "command:[]string=1|required")

record("HTTPHeader", "name!=1 value!=2")

record(
    "HTTPGetAction",
    "path=1|required port!:int-or-string=2|port-or-name! host=3 scheme=4 httpHeaders:[]HTTPHeader=5",
    path=Columns(default="/"),
    scheme=Columns(default="HTTP", enum="HTTP HTTPS"),
)

record("TCPSocketAction", "port!:int-or-string=1|port-or-name! host=2")

record("GRPCAction", "port!:int32=1|1..65535! service?=2", service=Columns(default=""))

record(
    "Probe",
    "exec?:ExecAction=1.1 httpGet?:HTTPGetAction=1.2 tcpSocket?:TCPSocketAction=1.3 grpc?:GRPCAction=1.4 "
    "initialDelaySeconds:int32=2|0.. timeoutSeconds:int32=3|0.. periodSeconds:int32=4|0.. "
    "successThreshold:int32=5|0.. failureThreshold:int32=6|0.. terminationGracePeriodSeconds?:int64=7|1..",
    timeoutSeconds=Columns(default=1),
    periodSeconds=Columns(default=10),
    successThreshold=Columns(default=1),
    failureThreshold=Columns(default=3),
)

record("SleepAction", "seconds!:int64=1|0..")

record(
    "LifecycleHandler",
    "exec?:ExecAction=1 httpGet?:HTTPGetAction=2 tcpSocket?:TCPSocketAction=3 sleep?:SleepAction=4",
)

record(
    "Lifecycle",
    "postStart?:LifecycleHandler=1 preStop?:LifecycleHandler=2 stopSignal?=3",
)

record("Capabilities", "add:[]string=1 drop:[]string=2")

record("SELinuxOptions", "user=1 role=2 type=3 level=4")

record(
    "WindowsSecurityContextOptions",
    "gmsaCredentialSpecName?=1 gmsaCredentialSpec?=2 runAsUserName?=3 hostProcess?:bool=4",
)

record(
    "SeccompProfile",
    "type!=1|required localhostProfile?=2",
    type=Columns(enum="Localhost RuntimeDefault Unconfined"),
)

alike("SeccompProfile", "AppArmorProfile")

record(
    "SecurityContext",
    "capabilities?:Capabilities=1 privileged?:bool=2 seLinuxOptions?:SELinuxOptions=3 "
    "windowsOptions?:WindowsSecurityContextOptions=10 runAsUser?:int64=4|0..2147483647 "
    "runAsGroup?:int64=8|0..2147483647 runAsNonRoot?:bool=5 readOnlyRootFilesystem?:bool=6 "
    "allowPrivilegeEscalation?:bool=7 procMount?=9 seccompProfile?:SeccompProfile=11 "
    "appArmorProfile?:AppArmorProfile=12",
    procMount=Columns(enum="Default Unmasked"),
)

CONTAINER = record(
    "Container",
    "name!=1|required|dns-label image=2|required|trimmed command:[]string=3 args:[]string=4 workingDir=5 "
    "ports:[]ContainerPort=6|unique-names envFrom:[]EnvFromSource=19 env:[]EnvVar=7 "
    "resources+:ResourceRequirements=8 "
    "resizePolicy:[]ContainerResizePolicy=23 restartPolicy?=24 restartPolicyRules:[]ContainerRestartRule=25 "
    "volumeMounts:[]VolumeMount=9 volumeDevices:[]VolumeDevice=21 livenessProbe?:Probe=10 "
    "readinessProbe?:Probe=11 startupProbe?:Probe=22 lifecycle?:Lifecycle=12 terminationMessagePath=13 "
    "terminationMessagePolicy=20|required imagePullPolicy=14|required securityContext?:SecurityContext=15 "
    "stdin:bool=16 stdinOnce:bool=17 tty:bool=18",
    rules="volume-mounts",
    ports=Columns(merge="containerPort", keys="containerPort protocol"),
    env=Columns(merge="name"),
    restartPolicy=Columns(enum="Always Never OnFailure"),
    volumeMounts=Columns(merge="mountPath"),
    volumeDevices=Columns(merge="devicePath"),
    terminationMessagePath=Columns(default="/dev/termination-log"),
    terminationMessagePolicy=Columns(default="File", enum="File FallbackToLogsOnError"),
    imagePullPolicy=Columns(default=image_pull_policy, enum="Always IfNotPresent Never"),
)

extend(CONTAINER, "EphemeralContainer", "targetContainerName=2")
