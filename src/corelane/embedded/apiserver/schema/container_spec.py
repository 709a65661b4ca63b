"""Containers of a pod: ports, environment, resources, probes, life cycle, security."""

from corelane.embedded.apiserver.schema import volume_sources  # noqa: F401 - for the types that rows here name
from corelane.embedded.apiserver.schema.derived_defaults import image_pull_policy
from corelane.embedded.apiserver.schema.notation import Columns, alike, extend, record

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

record("ResourceClaim", "name!=1 request=2|dns-label")

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

VOLUME_MOUNT = record(
    "VolumeMount",
    "name!=1|required readOnly:bool=2 recursiveReadOnly?=7 mountPath!=3|required subPath=4 "
    "mountPropagation?=5 subPathExpr=6",
    recursiveReadOnly=Columns(enum="Disabled Enabled IfPossible"),
    mountPropagation=Columns(enum="Bidirectional HostToContainer None"),
)

VOLUME_DEVICE = record("VolumeDevice", "name!=1|required devicePath!=2|required")

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
    "ports:[]ContainerPort=6 envFrom:[]EnvFromSource=19 env:[]EnvVar=7 resources+:ResourceRequirements=8 "
    "resizePolicy:[]ContainerResizePolicy=23 restartPolicy?=24 restartPolicyRules:[]ContainerRestartRule=25 "
    "volumeMounts:[]VolumeMount=9 volumeDevices:[]VolumeDevice=21 livenessProbe?:Probe=10 "
    "readinessProbe?:Probe=11 startupProbe?:Probe=22 lifecycle?:Lifecycle=12 terminationMessagePath=13 "
    "terminationMessagePolicy=20|required imagePullPolicy=14|required securityContext?:SecurityContext=15 "
    "stdin:bool=16 stdinOnce:bool=17 tty:bool=18",
    rules="ports volume-mounts volume-devices restarts",
    ports=Columns(merge="containerPort", keys="containerPort protocol"),
    env=Columns(merge="name"),
    restartPolicy=Columns(enum="Always Never OnFailure"),
    volumeMounts=Columns(merge="mountPath", walked=False),
    volumeDevices=Columns(merge="devicePath", walked=False),
    terminationMessagePath=Columns(default="/dev/termination-log"),
    terminationMessagePolicy=Columns(default="File", enum="File FallbackToLogsOnError"),
    imagePullPolicy=Columns(default=image_pull_policy, enum="Always IfNotPresent Never"),
)

extend(CONTAINER, "EphemeralContainer", "targetContainerName=2")
