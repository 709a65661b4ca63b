"""Containers of a pod: ports, environment, resources, probes, life cycle, security."""

from corelane.apiserver.schema.derived_defaults import image_pull_policy
from corelane.apiserver.schema.notation import (
    BOOL,
    INT32,
    INT64,
    INT_OR_STRING,
    RESOURCE_LIST,
    STRING,
    List,
    extend,
    opt,
    record,
    req,
    val,
)
from corelane.apiserver.schema.volume_sources import OBJECT_FIELD_SELECTOR, RESOURCE_FIELD_SELECTOR

CONTAINER_PORT = record(
    "ContainerPort",
    "containerPort hostPort protocol",
    name=val(STRING, check="port-name"),
    hostPort=val(INT32, check="port"),
    containerPort=req(INT32, check="required port"),
    protocol=val(STRING, default="TCP", check="required", enum="SCTP TCP UDP"),
    hostIP=val(STRING),
)

CONFIG_MAP_ENV_SOURCE = record(
    "ConfigMapEnvSource",
    name=val(STRING, default="", check="required name-prefix"),
    optional=opt(BOOL),
)

SECRET_ENV_SOURCE = record(
    "SecretEnvSource",
    name=val(STRING, default="", check="required name-prefix"),
    optional=opt(BOOL),
)

ENV_FROM_SOURCE = record(
    "EnvFromSource",
    "prefix configMapRef secretRef @env-from",
    prefix=val(STRING, check="env-name"),
    configMapRef=opt(CONFIG_MAP_ENV_SOURCE),
    secretRef=opt(SECRET_ENV_SOURCE),
)

CONFIG_MAP_KEY_SELECTOR = record(
    "ConfigMapKeySelector",
    name=val(STRING, default="", check="dns-subdomain!"),
    key=req(STRING, check="required config-key"),
    optional=opt(BOOL),
)

SECRET_KEY_SELECTOR = record(
    "SecretKeySelector",
    name=val(STRING, default="", check="dns-subdomain!"),
    key=req(STRING, check="required config-key"),
    optional=opt(BOOL),
)

FILE_KEY_SELECTOR = record(
    "FileKeySelector",
    "key volumeName path",
    volumeName=req(STRING, check="required dns-label"),
    path=req(STRING, check="required no-backsteps"),
    key=req(STRING, check="required env-name"),
    optional=opt(BOOL, default=False),
)

ENV_VAR_SOURCE = record(
    "EnvVarSource",
    "@env-field-ref @env-resource-ref configMapKeyRef secretKeyRef fileKeyRef",
    fieldRef=opt(OBJECT_FIELD_SELECTOR),
    resourceFieldRef=opt(RESOURCE_FIELD_SELECTOR),
    configMapKeyRef=opt(CONFIG_MAP_KEY_SELECTOR),
    secretKeyRef=opt(SECRET_KEY_SELECTOR),
    fileKeyRef=opt(FILE_KEY_SELECTOR),
)

ENV_VAR = record(
    "EnvVar",
    "name valueFrom @value-from",
    name=req(STRING, check="required env-name"),
    value=val(STRING),
    valueFrom=opt(ENV_VAR_SOURCE),
)

RESOURCE_CLAIM = record(
    "ResourceClaim",
    name=req(STRING),
    request=val(STRING),
)

RESOURCE_REQUIREMENTS = record(
    "ResourceRequirements",
    "@container-resources",
    limits=val(RESOURCE_LIST),
    requests=val(RESOURCE_LIST),
    claims=val(List(RESOURCE_CLAIM), list="map", keys="name"),
)

CONTAINER_RESIZE_POLICY = record(
    "ContainerResizePolicy",
    resourceName=req(STRING),
    restartPolicy=req(STRING),
)

CONTAINER_RESTART_RULE_ON_EXIT_CODES = record(
    "ContainerRestartRuleOnExitCodes",
    operator=val(STRING),
    values=val(List(INT32), list="set"),
)

CONTAINER_RESTART_RULE = record(
    "ContainerRestartRule",
    action=val(STRING),
    exitCodes=opt(CONTAINER_RESTART_RULE_ON_EXIT_CODES),
)

VOLUME_MOUNT = record(
    "VolumeMount",
    name=req(STRING),
    readOnly=val(BOOL),
    recursiveReadOnly=opt(STRING),
    mountPath=req(STRING),
    subPath=val(STRING),
    mountPropagation=opt(STRING),
    subPathExpr=val(STRING),
)

VOLUME_DEVICE = record(
    "VolumeDevice",
    name=req(STRING),
    devicePath=req(STRING),
)

EXEC_ACTION = record(
    "ExecAction",
    command=val(List(STRING), check="required"),
)

HTTP_HEADER = record(
    "HTTPHeader",
    name=req(STRING),
    value=req(STRING),
)

HTTP_GET_ACTION = record(
    "HTTPGetAction",
    "path port scheme @http-headers",
    path=val(STRING, default="/", check="required"),
    port=req(INT_OR_STRING, check="port-or-name!"),
    host=val(STRING),
    scheme=val(STRING, default="HTTP", enum="HTTP HTTPS"),
    httpHeaders=val(List(HTTP_HEADER), go="HTTPHeaders"),
)

TCP_SOCKET_ACTION = record(
    "TCPSocketAction",
    "port",
    port=req(INT_OR_STRING, check="port-or-name!"),
    host=val(STRING),
)

GRPC_ACTION = record(
    "GRPCAction",
    "port",
    port=req(INT32, check="port!"),
    service=opt(STRING, default=""),
)

PROBE = record(
    "Probe",
    "@handler initialDelaySeconds timeoutSeconds periodSeconds successThreshold failureThreshold "
    "terminationGracePeriodSeconds",
    exec=opt(EXEC_ACTION),
    httpGet=opt(HTTP_GET_ACTION, go="HTTPGet"),
    tcpSocket=opt(TCP_SOCKET_ACTION, go="TCPSocket"),
    grpc=opt(GRPC_ACTION, go="GRPC"),
    initialDelaySeconds=val(INT32, check="not-negative"),
    timeoutSeconds=val(INT32, default=1, check="not-negative"),
    periodSeconds=val(INT32, default=10, check="not-negative"),
    successThreshold=val(INT32, default=1, check="not-negative"),
    failureThreshold=val(INT32, default=3, check="not-negative"),
    terminationGracePeriodSeconds=opt(INT64, check="above-0"),
)

SLEEP_ACTION = record(
    "SleepAction",
    "@sleep",
    seconds=req(INT64),
)

LIFECYCLE_HANDLER = record(
    "LifecycleHandler",
    "@handler",
    exec=opt(EXEC_ACTION),
    httpGet=opt(HTTP_GET_ACTION, go="HTTPGet"),
    tcpSocket=opt(TCP_SOCKET_ACTION, go="TCPSocket"),
    sleep=opt(SLEEP_ACTION),
)

LIFECYCLE = record(
    "Lifecycle",
    "postStart preStop",
    postStart=opt(LIFECYCLE_HANDLER),
    preStop=opt(LIFECYCLE_HANDLER),
    stopSignal=opt(STRING),
)

CAPABILITIES = record(
    "Capabilities",
    add=val(List(STRING)),
    drop=val(List(STRING)),
)

SE_LINUX_OPTIONS = record(
    "SELinuxOptions",
    user=val(STRING),
    role=val(STRING),
    type=val(STRING),
    level=val(STRING),
)

WINDOWS_SECURITY_CONTEXT_OPTIONS = record(
    "WindowsSecurityContextOptions",
    "gmsaCredentialSpecName @windows-options",
    gmsaCredentialSpecName=opt(STRING, go="GMSACredentialSpecName", check="dns-subdomain"),
    gmsaCredentialSpec=opt(STRING, go="GMSACredentialSpec"),
    runAsUserName=opt(STRING),
    hostProcess=opt(BOOL),
)

SECCOMP_PROFILE = record(
    "SeccompProfile",
    "@seccomp",
    type=req(STRING),
    localhostProfile=opt(STRING),
)

APP_ARMOR_PROFILE = record(
    "AppArmorProfile",
    "@app-armor",
    type=req(STRING),
    localhostProfile=opt(STRING),
)

SECURITY_CONTEXT = record(
    "SecurityContext",
    "runAsUser runAsGroup @proc-mount seccompProfile @escalation windowsOptions appArmorProfile",
    capabilities=opt(CAPABILITIES),
    privileged=opt(BOOL),
    seLinuxOptions=opt(SE_LINUX_OPTIONS, go="SELinuxOptions"),
    windowsOptions=opt(WINDOWS_SECURITY_CONTEXT_OPTIONS),
    runAsUser=opt(INT64, check="user-id"),
    runAsGroup=opt(INT64, check="user-id"),
    runAsNonRoot=opt(BOOL),
    readOnlyRootFilesystem=opt(BOOL),
    allowPrivilegeEscalation=opt(BOOL),
    procMount=opt(STRING, enum="Default Unmasked"),
    seccompProfile=opt(SECCOMP_PROFILE),
    appArmorProfile=opt(APP_ARMOR_PROFILE),
)

CONTAINER = record(
    "Container",
    "name image terminationMessagePolicy @ports env envFrom @volume-mounts @volume-devices "
    "imagePullPolicy resources @resize-policy securityContext",
    name=req(STRING, check="required dns-label"),
    image=val(STRING, check="required"),
    command=val(List(STRING)),
    args=val(List(STRING)),
    workingDir=val(STRING),
    ports=val(List(CONTAINER_PORT), merge="containerPort", keys="containerPort protocol"),
    envFrom=val(List(ENV_FROM_SOURCE)),
    env=val(List(ENV_VAR), merge="name"),
    resources=req(RESOURCE_REQUIREMENTS, optional=True),
    resizePolicy=val(List(CONTAINER_RESIZE_POLICY)),
    restartPolicy=opt(STRING),
    restartPolicyRules=val(List(CONTAINER_RESTART_RULE)),
    volumeMounts=val(List(VOLUME_MOUNT), merge="mountPath"),
    volumeDevices=val(List(VOLUME_DEVICE), merge="devicePath"),
    livenessProbe=opt(PROBE),
    readinessProbe=opt(PROBE),
    startupProbe=opt(PROBE),
    lifecycle=opt(LIFECYCLE),
    terminationMessagePath=val(STRING, default="/dev/termination-log"),
    terminationMessagePolicy=val(STRING, default="File", check="required", enum="File FallbackToLogsOnError"),
    imagePullPolicy=val(
        STRING, default=image_pull_policy, check="required", enum="Always IfNotPresent Never"
    ),
    securityContext=opt(SECURITY_CONTEXT),
    stdin=val(BOOL),
    stdinOnce=val(BOOL),
    tty=val(BOOL, go="TTY"),
)

EPHEMERAL_CONTAINER = extend(CONTAINER, "EphemeralContainer", targetContainerName=val(STRING))
