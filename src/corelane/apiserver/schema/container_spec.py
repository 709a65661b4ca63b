"""Containers of a pod: ports, environment, resources, probes, life cycle, security."""

from corelane.apiserver.schema.derived_defaults import image_pull_policy
from corelane.apiserver.schema.notation import (
    BOOL,
    INT32,
    INT64,
    INT_OR_STRING,
    RESOURCE_LIST,
    STRING,
    ListType,
    alike,
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
    name=val(STRING, 1, check="port-name"),
    hostPort=val(INT32, 2, check="port"),
    containerPort=req(INT32, 3, check="required port"),
    protocol=val(STRING, 4, default="TCP", check="required", enum="SCTP TCP UDP"),
    hostIP=val(STRING, 5),
)

CONFIG_MAP_ENV_SOURCE = record(
    "ConfigMapEnvSource",
    name=val(STRING, "1.1", default="", check="required name-prefix"),
    optional=opt(BOOL, 2),
)

SECRET_ENV_SOURCE = alike(CONFIG_MAP_ENV_SOURCE, "SecretEnvSource")

ENV_FROM_SOURCE = record(
    "EnvFromSource",
    "prefix configMapRef secretRef @env-from",
    prefix=val(STRING, 1, check="env-name"),
    configMapRef=opt(CONFIG_MAP_ENV_SOURCE, 2),
    secretRef=opt(SECRET_ENV_SOURCE, 3),
)

CONFIG_MAP_KEY_SELECTOR = record(
    "ConfigMapKeySelector",
    name=val(STRING, "1.1", default="", check="dns-subdomain!"),
    key=req(STRING, 2, check="required config-key"),
    optional=opt(BOOL, 3),
)

SECRET_KEY_SELECTOR = alike(CONFIG_MAP_KEY_SELECTOR, "SecretKeySelector")

FILE_KEY_SELECTOR = record(
    "FileKeySelector",
    "key volumeName path",
    volumeName=req(STRING, 1, check="required dns-label"),
    path=req(STRING, 2, check="required no-backsteps"),
    key=req(STRING, 3, check="required env-name"),
    optional=opt(BOOL, 4, default=False),
)

ENV_VAR_SOURCE = record(
    "EnvVarSource",
    "@env-field-ref @env-resource-ref configMapKeyRef secretKeyRef fileKeyRef",
    fieldRef=opt(OBJECT_FIELD_SELECTOR, 1),
    resourceFieldRef=opt(RESOURCE_FIELD_SELECTOR, 2),
    configMapKeyRef=opt(CONFIG_MAP_KEY_SELECTOR, 3),
    secretKeyRef=opt(SECRET_KEY_SELECTOR, 4),
    fileKeyRef=opt(FILE_KEY_SELECTOR, 5),
)

ENV_VAR = record(
    "EnvVar",
    "name valueFrom @value-from",
    name=req(STRING, 1, check="required env-name"),
    value=val(STRING, 2),
    valueFrom=opt(ENV_VAR_SOURCE, 3),
)

RESOURCE_CLAIM = record("ResourceClaim", name=req(STRING, 1), request=val(STRING, 2))

RESOURCE_REQUIREMENTS = record(
    "ResourceRequirements",
    "@container-resources",
    limits=val(RESOURCE_LIST, 1),
    requests=val(RESOURCE_LIST, 2),
    claims=val(ListType(RESOURCE_CLAIM), 3, list="map", keys="name"),
)

CONTAINER_RESIZE_POLICY = record(
    "ContainerResizePolicy", resourceName=req(STRING, 1), restartPolicy=req(STRING, 2)
)

CONTAINER_RESTART_RULE_ON_EXIT_CODES = record(
    "ContainerRestartRuleOnExitCodes", operator=val(STRING, 1), values=val(ListType(INT32), 2, list="set")
)

CONTAINER_RESTART_RULE = record(
    "ContainerRestartRule", action=val(STRING, 1), exitCodes=opt(CONTAINER_RESTART_RULE_ON_EXIT_CODES, 2)
)

VOLUME_MOUNT = record(
    "VolumeMount",
    name=req(STRING, 1),
    readOnly=val(BOOL, 2),
    recursiveReadOnly=opt(STRING, 7),
    mountPath=req(STRING, 3),
    subPath=val(STRING, 4),
    mountPropagation=opt(STRING, 5),
    subPathExpr=val(STRING, 6),
)

VOLUME_DEVICE = record("VolumeDevice", name=req(STRING, 1), devicePath=req(STRING, 2))

EXEC_ACTION = record("ExecAction", command=val(ListType(STRING), 1, check="required"))

HTTP_HEADER = record("HTTPHeader", name=req(STRING, 1), value=req(STRING, 2))

HTTP_GET_ACTION = record(
    "HTTPGetAction",
    "path port scheme @http-headers",
    path=val(STRING, 1, default="/", check="required"),
    port=req(INT_OR_STRING, 2, check="port-or-name!"),
    host=val(STRING, 3),
    scheme=val(STRING, 4, default="HTTP", enum="HTTP HTTPS"),
    httpHeaders=val(ListType(HTTP_HEADER), 5, go="HTTPHeaders"),
)

TCP_SOCKET_ACTION = record(
    "TCPSocketAction", "port", port=req(INT_OR_STRING, 1, check="port-or-name!"), host=val(STRING, 2)
)

GRPC_ACTION = record(
    "GRPCAction", "port", port=req(INT32, 1, check="port!"), service=opt(STRING, 2, default="")
)

PROBE = record(
    "Probe",
    "@handler initialDelaySeconds timeoutSeconds periodSeconds successThreshold failureThreshold "
    "terminationGracePeriodSeconds",
    exec=opt(EXEC_ACTION, "1.1"),
    httpGet=opt(HTTP_GET_ACTION, "1.2", go="HTTPGet"),
    tcpSocket=opt(TCP_SOCKET_ACTION, "1.3", go="TCPSocket"),
    grpc=opt(GRPC_ACTION, "1.4", go="GRPC"),
    initialDelaySeconds=val(INT32, 2, check="not-negative"),
    timeoutSeconds=val(INT32, 3, default=1, check="not-negative"),
    periodSeconds=val(INT32, 4, default=10, check="not-negative"),
    successThreshold=val(INT32, 5, default=1, check="not-negative"),
    failureThreshold=val(INT32, 6, default=3, check="not-negative"),
    terminationGracePeriodSeconds=opt(INT64, 7, check="above-0"),
)

SLEEP_ACTION = record("SleepAction", "@sleep", seconds=req(INT64, 1))

LIFECYCLE_HANDLER = record(
    "LifecycleHandler",
    "@handler",
    exec=opt(EXEC_ACTION, 1),
    httpGet=opt(HTTP_GET_ACTION, 2, go="HTTPGet"),
    tcpSocket=opt(TCP_SOCKET_ACTION, 3, go="TCPSocket"),
    sleep=opt(SLEEP_ACTION, 4),
)

LIFECYCLE = record(
    "Lifecycle",
    "postStart preStop",
    postStart=opt(LIFECYCLE_HANDLER, 1),
    preStop=opt(LIFECYCLE_HANDLER, 2),
    stopSignal=opt(STRING, 3),
)

CAPABILITIES = record("Capabilities", add=val(ListType(STRING), 1), drop=val(ListType(STRING), 2))

SE_LINUX_OPTIONS = record(
    "SELinuxOptions", user=val(STRING, 1), role=val(STRING, 2), type=val(STRING, 3), level=val(STRING, 4)
)

WINDOWS_SECURITY_CONTEXT_OPTIONS = record(
    "WindowsSecurityContextOptions",
    gmsaCredentialSpecName=opt(STRING, 1, go="GMSACredentialSpecName", check="dns-subdomain"),
    gmsaCredentialSpec=opt(STRING, 2, go="GMSACredentialSpec"),
    runAsUserName=opt(STRING, 3),
    hostProcess=opt(BOOL, 4),
)

SECCOMP_PROFILE = record("SeccompProfile", "@seccomp", type=req(STRING, 1), localhostProfile=opt(STRING, 2))

APP_ARMOR_PROFILE = record(
    "AppArmorProfile", "@app-armor", type=req(STRING, 1), localhostProfile=opt(STRING, 2)
)

SECURITY_CONTEXT = record(
    "SecurityContext",
    "runAsUser runAsGroup @proc-mount seccompProfile @escalation windowsOptions appArmorProfile",
    capabilities=opt(CAPABILITIES, 1),
    privileged=opt(BOOL, 2),
    seLinuxOptions=opt(SE_LINUX_OPTIONS, 3, go="SELinuxOptions"),
    windowsOptions=opt(WINDOWS_SECURITY_CONTEXT_OPTIONS, 10),
    runAsUser=opt(INT64, 4, check="user-id"),
    runAsGroup=opt(INT64, 8, check="user-id"),
    runAsNonRoot=opt(BOOL, 5),
    readOnlyRootFilesystem=opt(BOOL, 6),
    allowPrivilegeEscalation=opt(BOOL, 7),
    procMount=opt(STRING, 9, enum="Default Unmasked"),
    seccompProfile=opt(SECCOMP_PROFILE, 11),
    appArmorProfile=opt(APP_ARMOR_PROFILE, 12),
)

CONTAINER = record(
    "Container",
    "name image terminationMessagePolicy @ports env envFrom @volume-mounts @volume-devices "
    "imagePullPolicy resources @resize-policy securityContext",
    name=req(STRING, 1, check="required dns-label"),
    image=val(STRING, 2, check="required"),
    command=val(ListType(STRING), 3),
    args=val(ListType(STRING), 4),
    workingDir=val(STRING, 5),
    ports=val(ListType(CONTAINER_PORT), 6, merge="containerPort", keys="containerPort protocol"),
    envFrom=val(ListType(ENV_FROM_SOURCE), 19),
    env=val(ListType(ENV_VAR), 7, merge="name"),
    resources=req(RESOURCE_REQUIREMENTS, 8, optional=True),
    resizePolicy=val(ListType(CONTAINER_RESIZE_POLICY), 23),
    restartPolicy=opt(STRING, 24),
    restartPolicyRules=val(ListType(CONTAINER_RESTART_RULE), 25),
    volumeMounts=val(ListType(VOLUME_MOUNT), 9, merge="mountPath"),
    volumeDevices=val(ListType(VOLUME_DEVICE), 21, merge="devicePath"),
    livenessProbe=opt(PROBE, 10),
    readinessProbe=opt(PROBE, 11),
    startupProbe=opt(PROBE, 22),
    lifecycle=opt(LIFECYCLE, 12),
    terminationMessagePath=val(STRING, 13, default="/dev/termination-log"),
    terminationMessagePolicy=val(
        STRING, 20, default="File", check="required", enum="File FallbackToLogsOnError"
    ),
    imagePullPolicy=val(
        STRING, 14, default=image_pull_policy, check="required", enum="Always IfNotPresent Never"
    ),
    securityContext=opt(SECURITY_CONTEXT, 15),
    stdin=val(BOOL, 16),
    stdinOnce=val(BOOL, 17),
    tty=val(BOOL, 18, go="TTY"),
)

EPHEMERAL_CONTAINER = extend(CONTAINER, "EphemeralContainer", targetContainerName=val(STRING, 2))
