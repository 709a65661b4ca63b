"""Rules on a pod's specification and its containers that look at more than one field."""

from collections.abc import Iterator

from corelane import names
from corelane.embedded.apiserver.status_errors import StatusCause
from corelane.embedded.apiserver.validation import causes
from corelane.embedded.apiserver.validation.causes import child, item
from corelane.embedded.apiserver.validation.table_rules import Object, Scope, rule

_CLAIM_SOURCES = {"resourceClaimName", "resourceClaimTemplateName"}
_SIDECAR_FIELDS = ("lifecycle", "livenessProbe", "readinessProbe", "startupProbe")
_MOST_RESTART_RULES = 20
_MOST_EXIT_CODES = 255


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
