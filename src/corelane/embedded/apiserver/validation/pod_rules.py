"""Rules on a pod's specification that look at more than one field: containers, volumes, where it may go."""

from collections.abc import Iterable, Iterator

from corelane import names
from corelane.embedded.apiserver.schema.container_spec import VOLUME, VOLUME_DEVICE, VOLUME_MOUNT
from corelane.embedded.apiserver.status_errors import StatusCause
from corelane.embedded.apiserver.stored_objects import Object
from corelane.embedded.apiserver.validation import causes
from corelane.embedded.apiserver.validation.causes import child, item, shown
from corelane.embedded.apiserver.validation.table_rules import Scope, rule, walk

_CLAIM_SOURCES = {"resourceClaimName", "resourceClaimTemplateName"}
_SIDECAR_FIELDS = ("lifecycle", "livenessProbe", "readinessProbe", "startupProbe")
_MOST_RESTART_RULES = 20
_MOST_EXIT_CODES = 255
SOURCES = tuple(name for name in VOLUME.fields if name != "name")
_NO_CLAIMS = (
    "this API server serves no PersistentVolumeClaims; use an emptyDir volume, or a cluster with storage"
)


def create(pod: Object) -> Iterator[StatusCause]:
    """Check rules for new pods only."""
    spec = pod["spec"]
    if spec.get("ephemeralContainers"):
        yield causes.forbidden("spec.ephemeralContainers", "cannot be set on create")
    if spec.get("nodeName") and spec.get("schedulingGates"):
        yield causes.forbidden("spec.nodeName", "cannot be set while schedulingGates are")


@rule("resource-claims")
def _resource_claims(spec: Object, path: str, _scope: Scope) -> Iterator[StatusCause]:
    seen: set[str] = set()
    for index, claim in enumerate(spec.get("resourceClaims", ())):
        where, name = item(child(path, "resourceClaims"), index), claim.get("name", "")
        if name in seen:
            yield causes.duplicate(child(where, "name"), name)
        seen.add(name)
        if len(_CLAIM_SOURCES & claim.keys()) != 1:
            yield causes.invalid(
                where, claim, f"must have exactly one of {', '.join(sorted(_CLAIM_SOURCES))}"
            )


@rule("gates")
def _gates(spec: Object, path: str, _scope: Scope) -> Iterator[StatusCause]:
    seen: set[str] = set()
    for index, gate in enumerate(spec.get("schedulingGates", ())):
        where, name = item(child(path, "schedulingGates"), index), gate.get("name", "")
        yield from causes.all_invalid(where, name, names.qualified_name(name))
        if name in seen:
            yield causes.duplicate(where, name)
        seen.add(name)


# --- containers


@rule("pod-containers")
def _containers(spec: Object, path: str, _scope: Scope) -> Iterator[StatusCause]:
    path, seen = child(path, "containers"), set()
    listed = spec.get("containers") or []
    for index, container in enumerate(listed):
        name = container.get("name", "")
        if name in seen:
            yield causes.duplicate(child(item(path, index), "name"), name)
        seen.add(name)
    yield from _repeated_host_ports(listed, path)


@rule("init-containers")
def _init_containers(spec: Object, path: str, _scope: Scope) -> Iterator[StatusCause]:
    names = {container.get("name", "") for container in spec.get("containers") or ()}
    for index, container in enumerate(spec.get("initContainers", ())):
        where, name = item(child(path, "initContainers"), index), container.get("name", "")
        if name in names:
            yield causes.duplicate(child(where, "name"), name)
        elif name:
            names.add(name)
        yield from _repeated_host_ports([container], child(path, "initContainers"))
        if container.get("restartPolicy") != "Always":
            yield from _not_a_sidecar(container, where)


def _not_a_sidecar(container: Object, path: str) -> Iterator[StatusCause]:
    for name in _SIDECAR_FIELDS:
        if name in container:
            yield causes.forbidden(child(path, name), "requires restartPolicy Always in an init container")
    for index, policy in enumerate(container.get("resizePolicy", ())):
        if policy.get("restartPolicy") == "RestartContainer":
            where = child(item(child(path, "resizePolicy"), index), "restartPolicy")
            yield causes.invalid(
                where, "RestartContainer", "requires restartPolicy Always in an init container"
            )


def _repeated_host_ports(listed: list[Object], path: str) -> Iterator[StatusCause]:
    taken: set[str] = set()
    for index, container in enumerate(listed):
        for number, port in enumerate(container.get("ports", ())):
            if not port.get("hostPort"):
                continue
            text = f"{port.get('protocol', '')}/{port.get('hostIP', '')}/{port['hostPort']}"
            if text in taken:
                where = item(child(item(path, index), "ports"), number)
                yield causes.duplicate(child(where, "hostPort"), text)
            taken.add(text)


@rule("host-ports")
def _host_ports(spec: Object, path: str, _scope: Scope) -> Iterator[StatusCause]:
    """On the host's network a container's port is the host's port."""
    for index, container in enumerate(spec.get("containers") or () if spec.get("hostNetwork") else ()):
        for number, port in enumerate(container.get("ports", ())):
            host = port.get("hostPort", 0)
            if host != port.get("containerPort", 0):
                where = item(child(item(child(path, "containers"), index), "ports"), number)
                yield causes.invalid(child(where, "hostPort"), host, "must be containerPort with hostNetwork")


@rule("ports")
def _ports(container: Object, path: str, _scope: Scope) -> Iterator[StatusCause]:
    names: set[str] = set()
    for index, port in enumerate(container.get("ports", ())):
        name = port.get("name", "")
        if name and name in names:
            yield causes.duplicate(child(item(child(path, "ports"), index), "name"), name)
        names.add(name)


@rule("restarts")
def _restarts(container: Object, path: str, scope: Scope) -> Iterator[StatusCause]:
    rules, where = container.get("restartPolicyRules", ()), child(path, "restartPolicyRules")
    if rules and "restartPolicy" not in container:
        yield causes.required(child(path, "restartPolicy"), "must be set where restartPolicyRules are")
    if len(rules) > _MOST_RESTART_RULES:
        yield causes.too_many(where, len(rules), _MOST_RESTART_RULES)
    for index, restart in enumerate(rules):
        codes = restart.get("exitCodes", {}).get("values", ())
        if len(codes) > _MOST_EXIT_CODES:
            spot = child(item(where, index), "exitCodes", "values")
            yield causes.too_many(spot, len(codes), _MOST_EXIT_CODES)
    yield from _resize_policies(container, child(path, "resizePolicy"), scope)


def _resize_policies(container: Object, path: str, scope: Scope) -> Iterator[StatusCause]:
    seen: set[str] = set()
    for index, policy in enumerate(container.get("resizePolicy", ())):
        resource, restart = policy.get("resourceName", ""), policy.get("restartPolicy", "")
        if resource in seen:
            yield causes.duplicate(item(path, index), resource)
        seen.add(resource)
        if scope.spec.get("restartPolicy") == "Never" and restart != "NotRequired":
            yield causes.invalid(path, restart, "must be NotRequired with the pod's restartPolicy Never")


@rule("value-from")
def _value_from(env: Object, path: str, _scope: Scope) -> Iterator[StatusCause]:
    source = env.get("valueFrom")
    if source is not None and (len(source) != 1 or env.get("value")):
        why = "must have exactly one source, and no value beside it"
        yield causes.invalid(child(path, "valueFrom"), source, why)


@rule("env-from")
def _env_from(source: Object, path: str, _scope: Scope) -> Iterator[StatusCause]:
    """Upstream's fault names the list."""
    if ("configMapRef" in source) == ("secretRef" in source):
        where = path[: path.rindex("[")]
        yield causes.invalid(where, source, "must have exactly one of configMapRef and secretRef")


@rule("volumes")
def _volumes(volumes: list[Object], path: str, scope: Scope) -> Iterator[StatusCause]:
    """Check volumes, and note those without a fault, which containers may use."""
    for index, volume in enumerate(volumes):
        where, name = item(path, index), volume.get("name", "")
        faults = list(walk(VOLUME, volume, where, scope))
        if name in scope.volumes:
            faults.append(causes.duplicate(child(where, "name"), name))
        if not faults:
            scope.volumes[name] = volume
        yield from faults


@rule("volume-source")
def _volume_source(volume: Object, path: str, scope: Scope) -> Iterator[StatusCause]:
    given = [name for name in SOURCES if name in volume]
    if not given:
        yield causes.required(path, "must specify a volume type")
    for name in given[1:]:
        yield causes.forbidden(child(path, name), "may not specify more than 1 volume type")
    if scope.old is None:
        yield from _claim(volume, path)


def _claim(volume: Object, path: str) -> Iterator[StatusCause]:
    """Refuse claims in new pods; pods stored by versions that served claims stay as they are."""
    if "persistentVolumeClaim" in volume:
        name = volume["persistentVolumeClaim"].get("claimName", "")
        text = f"claim {shown(name)} is unavailable: {_NO_CLAIMS}"
        yield causes.forbidden(child(path, "persistentVolumeClaim"), text)
    if "ephemeral" in volume:
        yield causes.forbidden(child(path, "ephemeral"), f"no claim is created for the volume: {_NO_CLAIMS}")


@rule("volume-mounts")
def _volume_mounts(container: Object, path: str, scope: Scope) -> Iterator[StatusCause]:
    points: set[str] = set()
    for index, mount in enumerate(container.get("volumeMounts", ())):
        where, point = item(child(path, "volumeMounts"), index), mount.get("mountPath", "")
        yield from walk(VOLUME_MOUNT, mount, where, scope)
        yield from _volume_exists(mount, where, scope)
        if point in points:
            yield causes.invalid(child(where, "mountPath"), point, "must be unique")
        points.add(point)


@rule("volume-devices")
def _volume_devices(container: Object, path: str, scope: Scope) -> Iterator[StatusCause]:
    """Check block devices: only claims have them."""
    for index, device in enumerate(container.get("volumeDevices", ())):
        where, name = item(child(path, "volumeDevices"), index), device.get("name", "")
        yield from walk(VOLUME_DEVICE, device, where, scope)
        yield from _volume_exists(device, where, scope)
        if name in scope.volumes and scope.old is None:
            yield causes.invalid(
                child(where, "name"), name, f"the volume is not a block device: {_NO_CLAIMS}"
            )


def _volume_exists(use: Object, path: str, scope: Scope) -> Iterator[StatusCause]:
    name = use.get("name", "")
    if name not in scope.volumes:
        yield causes.not_found(child(path, "name"), name)


@rule("selector-operator")
def _selector_operator(requirement: Object, path: str, _scope: Scope) -> list[StatusCause]:
    operator, values = requirement.get("operator", ""), requirement.get("values", ())
    if operator in {"In", "NotIn"}:
        return [] if values else [causes.required(child(path, "values"), "In and NotIn require values")]
    if operator in {"Exists", "DoesNotExist"}:
        return (
            [causes.forbidden(child(path, "values"), "Exists and DoesNotExist have no values")]
            if values
            else []
        )
    return [causes.invalid(child(path, "operator"), operator, "must be In, NotIn, Exists or DoesNotExist")]


@rule("node-expressions")
def _node_expressions(term: Object, path: str, scope: Scope) -> Iterator[StatusCause]:
    for index, requirement in enumerate(term.get("matchExpressions", ())):
        where = item(child(path, "matchExpressions"), index)
        operator, values = requirement.get("operator", ""), requirement.get("values", ())
        if operator in {"Gt", "Lt"}:
            if len(values) != 1:
                yield causes.required(child(where, "values"), "Gt and Lt require one value")
        else:
            yield from _selector_operator(requirement, where, scope)
        name = requirement.get("key", "")
        yield from causes.all_invalid(child(where, "key"), name, names.qualified_name(name))
        if not path.endswith(".preference"):
            for number, value in enumerate(values):
                spot = item(child(where, "values"), number)
                yield from causes.all_invalid(spot, value, names.label_value(value))


@rule("node-fields")
def _node_fields(term: Object, path: str, _scope: Scope) -> Iterator[StatusCause]:
    for index, requirement in enumerate(term.get("matchFields", ())):
        where, values = item(child(path, "matchFields"), index), requirement.get("values", ())
        operator, name = requirement.get("operator", ""), requirement.get("key", "")
        if operator not in {"In", "NotIn"}:
            yield causes.invalid(child(where, "operator"), operator, "must be In or NotIn")
        elif len(values) != 1:
            yield causes.required(child(where, "values"), "must be one value")
        if name != "metadata.name":
            yield causes.invalid(child(where, "key"), name, "must be metadata.name")
            continue
        for number, value in enumerate(values):
            spot = item(child(where, "values"), number)
            yield from causes.all_invalid(spot, value, names.dns_subdomain(value))


@rule("term-namespaces")
def _term_namespaces(term: Object, path: str, _scope: Scope) -> Iterator[StatusCause]:
    for name in term.get("namespaces", ()):
        yield from causes.all_invalid(child(path, "namespace"), name, names.dns_label(name))


@rule("label-keys")
def _label_keys(term: Object, path: str, _scope: Scope) -> Iterator[StatusCause]:
    """KEP-3633: keys whose values come from the pod's own labels."""
    selector, match = term.get("labelSelector"), term.get("matchLabelKeys", ())
    mismatch = term.get("mismatchLabelKeys", ())
    for name, listed in (("matchLabelKeys", match), ("mismatchLabelKeys", mismatch)):
        if listed and selector is None:
            yield causes.forbidden(child(path, name), "requires labelSelector")
        elif listed:
            for index, label in enumerate(listed):
                spot = item(child(path, name), index)
                yield from causes.all_invalid(spot, label, names.qualified_name(label))
    yield from _repeated_label_keys(selector or {}, match, path)
    foreign = frozenset(mismatch)
    for index, label in enumerate(match):
        if label in foreign:
            spot = item(child(path, "matchLabelKeys"), index)
            yield causes.invalid(spot, label, "must not be in mismatchLabelKeys, too")


def _repeated_label_keys(selector: Object, match: Iterable[str], path: str) -> Iterator[StatusCause]:
    """The server merges the keys into the selector: a key that is there twice was there before."""
    first = {label: index for index, label in reversed(list(enumerate(match)))}
    seen = set(selector.get("matchLabels", ()))
    for expression in selector.get("matchExpressions", ()):
        label = expression.get("key", "")
        if label in first and label in seen:
            spot = item(path, first[label])
            yield causes.invalid(spot, label, "must not be in labelSelector, too")
        seen.add(label)


@rule("spread")
def _repeated_constraints(spec: Object, path: str, _scope: Scope) -> Iterator[StatusCause]:
    """All but the last of constraints on the same topology with the same action are at fault."""
    listed = spec.get("topologySpreadConstraints", ())
    pairs = [
        (constraint.get("topologyKey", ""), constraint.get("whenUnsatisfiable", "")) for constraint in listed
    ]
    last = {pair: index for index, pair in enumerate(pairs)}
    for index, pair in enumerate(pairs):
        if index < last[pair]:
            where = item(child(path, "topologySpreadConstraints"), index)
            yield causes.duplicate(child(where, "{topologyKey, whenUnsatisfiable}"), ", ".join(pair))


@rule("min-domains")
def _min_domains(constraint: Object, path: str, _scope: Scope) -> Iterator[StatusCause]:
    domains = constraint.get("minDomains")
    if domains is not None and constraint.get("whenUnsatisfiable") != "DoNotSchedule":
        yield causes.invalid(child(path, "minDomains"), domains, "requires whenUnsatisfiable DoNotSchedule")


@rule("toleration")
def _toleration(toleration: Object, path: str, _scope: Scope) -> Iterator[StatusCause]:
    operator, value = toleration.get("operator", ""), toleration.get("value", "")
    where = child(path, "operator")
    if operator not in {"", "Equal", "Exists"}:
        yield causes.not_supported(where, operator, ("Equal", "Exists"))
    if not toleration.get("key") and operator != "Exists":
        yield causes.invalid(where, operator, "must be Exists without a key: all keys and values match")
    if operator == "Exists" and value:
        yield causes.invalid(where, value, "Exists has no value")
    elif operator in {"", "Equal"}:
        yield from causes.all_invalid(where, value, names.label_value(value))
    if "tolerationSeconds" in toleration and toleration.get("effect") != "NoExecute":
        yield causes.invalid(
            child(path, "effect"), toleration.get("effect", ""), "tolerationSeconds require NoExecute"
        )
