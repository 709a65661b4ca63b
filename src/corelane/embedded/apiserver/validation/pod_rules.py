"""Rules on a pod's specification that look at more than one field: containers, volumes, where it may go."""

from collections.abc import Iterator

from corelane import names
from corelane.embedded.apiserver.schema.container_spec import VOLUME
from corelane.embedded.apiserver.status_errors import StatusCause
from corelane.embedded.apiserver.stored_objects import Object
from corelane.embedded.apiserver.validation import causes
from corelane.embedded.apiserver.validation.causes import child, item, shown
from corelane.embedded.apiserver.validation.table_rules import Scope, rule

_SIDECAR_FIELDS = ("lifecycle", "livenessProbe", "readinessProbe", "startupProbe")
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


# --- containers


@rule("unique-names")
def _unique_names(items: list[Object], path: str, _scope: Scope) -> Iterator[StatusCause]:
    """Check that no two items of a list have the same name."""
    taken: set[str] = set()
    for index, part in enumerate(items):
        name = part.get("name", "")
        if name and name in taken:
            yield causes.duplicate(child(item(path, index), "name"), name)
        taken.add(name)


@rule("gate-names")
def _gate_names(gates: list[Object], path: str, _scope: Scope) -> Iterator[StatusCause]:
    for index, gate in enumerate(gates):
        name = gate.get("name", "")
        yield from causes.all_invalid(item(path, index), name, names.qualified_name(name))


@rule("pod-containers")
def _containers(spec: Object, path: str, _scope: Scope) -> Iterator[StatusCause]:
    """Check names and host ports, and the fields that an init container has only as a sidecar."""
    container_names: set[str] = set()
    for column in ("containers", "initContainers"):
        taken: set[str] = set()
        for index, container in enumerate(spec.get(column) or ()):
            where, name = item(child(path, column), index), container.get("name", "")
            if name in container_names:
                yield causes.duplicate(child(where, "name"), name)
            container_names.add(name)
            if column == "initContainers":
                taken = set()  # they run one after the other
                if container.get("restartPolicy") != "Always":
                    for field in (field for field in _SIDECAR_FIELDS if field in container):
                        why = "requires restartPolicy Always in an init container"
                        yield causes.forbidden(child(where, field), why)
            for number, port in enumerate(container.get("ports", ())):
                host, spot = port.get("hostPort", 0), child(item(child(where, "ports"), number), "hostPort")
                text = f"{port.get('protocol', '')}/{port.get('hostIP', '')}/{host}"
                if host and text in taken:
                    yield causes.duplicate(spot, text)
                taken.add(text)
                if (
                    spec.get("hostNetwork")
                    and column == "containers"
                    and host != port.get("containerPort", 0)
                ):
                    yield causes.invalid(spot, host, "must be containerPort with hostNetwork")


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


@rule("volume-source")
def _volume_source(volume: Object, path: str, scope: Scope) -> Iterator[StatusCause]:
    """Check for one source. A claim is refused in new pods; pods stored by versions with claims stay."""
    for name in [name for name in SOURCES if name in volume][1:]:
        yield causes.forbidden(child(path, name), "may not specify more than 1 volume type")
    if scope.old is None and "persistentVolumeClaim" in volume:
        name = volume["persistentVolumeClaim"].get("claimName", "")
        text = f"claim {shown(name)} is unavailable: {_NO_CLAIMS}"
        yield causes.forbidden(child(path, "persistentVolumeClaim"), text)
    if scope.old is None and "ephemeral" in volume:
        yield causes.forbidden(child(path, "ephemeral"), f"no claim is created for the volume: {_NO_CLAIMS}")


@rule("volume-mounts")
def _volume_mounts(container: Object, path: str, scope: Scope) -> Iterator[StatusCause]:
    volumes = {volume.get("name", "") for volume in scope.spec.get("volumes", ())}
    points: set[str] = set()
    for index, mount in enumerate(container.get("volumeMounts", ())):
        where, point = item(child(path, "volumeMounts"), index), mount.get("mountPath", "")
        if mount.get("name", "") not in volumes:
            yield causes.not_found(child(where, "name"), mount.get("name", ""))
        if point in points:
            yield causes.invalid(child(where, "mountPath"), point, "must be unique")
        points.add(point)
    if container.get("volumeDevices") and scope.old is None:
        yield causes.forbidden(child(path, "volumeDevices"), f"no volume is a block device: {_NO_CLAIMS}")


@rule("selector-operator")
def _selector_operator(requirement: Object, path: str, _scope: Scope) -> list[StatusCause]:
    operator, values = requirement.get("operator", ""), requirement.get("values", ())
    if operator in {"In", "NotIn"}:
        return [] if values else [causes.required(child(path, "values"), "In and NotIn require values")]
    if operator not in {"Exists", "DoesNotExist"}:
        why = "must be In, NotIn, Exists or DoesNotExist"
        return [causes.invalid(child(path, "operator"), operator, why)]
    why = "Exists and DoesNotExist have no values"
    return [causes.forbidden(child(path, "values"), why)] if values else []


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


@rule("label-keys")
def _label_keys(term: Object, path: str, _scope: Scope) -> Iterator[StatusCause]:
    """KEP-3633: keys whose values come from the pod's own labels."""
    for name in ("matchLabelKeys", "mismatchLabelKeys"):
        if term.get(name) and term.get("labelSelector") is None:
            yield causes.forbidden(child(path, name), "requires labelSelector")


@rule("toleration")
def _toleration(toleration: Object, path: str, _scope: Scope) -> Iterator[StatusCause]:
    operator, effect = toleration.get("operator", ""), toleration.get("effect", "")
    if not toleration.get("key") and operator != "Exists":
        why = "must be Exists without a key: all keys and values match"
        yield causes.invalid(child(path, "operator"), operator, why)
    if "tolerationSeconds" in toleration and effect != "NoExecute":
        yield causes.invalid(child(path, "effect"), effect, "tolerationSeconds require NoExecute")
