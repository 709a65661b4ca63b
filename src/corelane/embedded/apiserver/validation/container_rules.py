"""Rules on containers that look at more than one field: names, ports, probes, restarts, privileges."""

from collections.abc import Iterator
from typing import Any

from corelane.embedded.apiserver import formats
from corelane.embedded.apiserver.codec import go_rendering
from corelane.embedded.apiserver.schema import container_spec as tables
from corelane.embedded.apiserver.status_errors import StatusCause
from corelane.embedded.apiserver.validation import causes
from corelane.embedded.apiserver.validation.causes import child, item
from corelane.embedded.apiserver.validation.table_rules import Object, Scope, check_field, rule, walk

HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc", "sleep")
_RESTART_POLICIES = ("Always", "Never", "OnFailure")
_RULE_ACTIONS = ("Restart", "RestartAllContainers")
_FOREIGN_TO_EPHEMERAL = (
    "ports",
    "resources",
    "resizePolicy",
    "restartPolicy",
    "restartPolicyRules",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "lifecycle",
)
_NOT_EPHEMERAL = "cannot be set for an Ephemeral Container"


@rule("containers")
def _containers(spec: Object, path: str, scope: Scope) -> Iterator[StatusCause]:
    path = child(path, "containers")
    listed = spec.get("containers") or []
    if not listed:
        yield causes.required(path)
    names: set[str] = set()
    for index, container in enumerate(listed):
        where = item(path, index)
        yield from walk(tables.CONTAINER, container, where, scope)
        if container.get("name", "") in names:
            yield causes.duplicate(child(where, "name"), container.get("name", ""))
        names.add(container.get("name", ""))
        yield from _life(container, where, scope)
        yield from _restart_policy(container, where)
    yield from _host_ports(listed, path)


@rule("init-containers")
def _init_containers(spec: Object, path: str, scope: Scope) -> Iterator[StatusCause]:
    path = child(path, "initContainers")
    names = {container.get("name", "") for container in spec.get("containers") or ()}
    for index, container in enumerate(spec.get("initContainers", ())):
        where = item(path, index)
        yield from walk(tables.CONTAINER, container, where, scope)
        if "restartPolicy" in container:
            yield from _restart_policy(container, where)
        elif container.get("restartPolicyRules"):
            yield _no_policy(where)  # and nothing on the rules themselves, other than in other containers
        name = container.get("name", "")
        if name in names:
            yield causes.duplicate(child(where, "name"), name)
        elif name:
            names.add(name)
        yield from _host_ports([container], path)
        yield from _init_life(container, where, scope)


def _init_life(container: Object, path: str, scope: Scope) -> Iterator[StatusCause]:
    sidecar = container.get("restartPolicy") == "Always"
    if sidecar:
        yield from _life(container, path, scope)
        return
    for name in ("lifecycle", "livenessProbe", "readinessProbe", "startupProbe"):
        if name in container:
            why = "may not be set for init containers without restartPolicy=Always"
            yield causes.forbidden(child(path, name), why)
    for index, policy in enumerate(container.get("resizePolicy", ())):
        if policy.get("restartPolicy") == "RestartContainer":
            where = child(item(child(path, "resizePolicy"), index), "restartPolicy")
            why = "must not be set to 'RestartContainer' for non-sidecar initContainers"
            yield causes.invalid(where, "RestartContainer", why)


@rule("ephemeral-containers")
def _ephemeral_containers(spec: Object, path: str, scope: Scope) -> Iterator[StatusCause]:
    path = child(path, "ephemeralContainers")
    others = {
        one.get("name", "") for one in (*(spec.get("containers") or ()), *spec.get("initContainers", ()))
    }
    names = set(others)
    for index, container in enumerate(spec.get("ephemeralContainers", ())):
        where = item(path, index)
        yield from walk(tables.CONTAINER, container, where, scope)
        yield from untrimmed_image(container, where)
        name = container.get("name", "")
        if name in names:
            yield causes.duplicate(child(where, "name"), name)
        names.add(name)
        target = container.get("targetContainerName", "")
        if target and target not in others:
            yield causes.not_found(child(where, "targetContainerName"), target)
        yield from _foreign_to_ephemeral(container, where)


def _foreign_to_ephemeral(container: Object, path: str) -> Iterator[StatusCause]:
    for name in _FOREIGN_TO_EPHEMERAL:
        if container.get(name):
            yield causes.forbidden(child(path, name), _NOT_EPHEMERAL)
    for index, mount in enumerate(container.get("volumeMounts", ())):
        for name in ("subPath", "subPathExpr"):
            if mount.get(name):
                where = child(item(child(path, "volumeMounts"), index), name)
                yield causes.forbidden(where, _NOT_EPHEMERAL)


def untrimmed_image(container: Object, path: str) -> list[StatusCause]:
    image = container.get("image", "")
    if image == image.strip():
        return []
    return [causes.invalid(child(path, "image"), image, "must not have leading or trailing whitespace")]


def _life(container: Object, path: str, scope: Scope) -> Iterator[StatusCause]:
    """Life cycle and probes; a liveness or startup probe succeeds at once."""
    for name in ("lifecycle", "livenessProbe", "readinessProbe", "startupProbe"):
        yield from check_field(tables.CONTAINER.fields[name], container, path, scope)
        probe = container.get(name, {})
        where = child(path, name)
        if name in {"livenessProbe", "startupProbe"} and probe and probe.get("successThreshold") != 1:
            threshold = probe.get("successThreshold", 0)
            yield causes.invalid(child(where, "successThreshold"), threshold, "must be 1")
        if name == "readinessProbe" and "terminationGracePeriodSeconds" in probe:
            seconds = probe["terminationGracePeriodSeconds"]
            where = child(where, "terminationGracePeriodSeconds")
            yield causes.invalid(where, seconds, "must not be set for readinessProbes")


def _restart_policy(container: Object, path: str) -> Iterator[StatusCause]:
    policy, rules = container.get("restartPolicy"), container.get("restartPolicyRules", [])
    if policy is None and rules:
        yield _no_policy(path)
    if policy is not None and policy not in _RESTART_POLICIES:
        yield causes.not_supported(child(path, "restartPolicy"), policy, _RESTART_POLICIES)
    if len(rules) > 20:
        yield causes.too_many(child(path, "restartPolicyRules"), len(rules), 20)
    for index, restart in enumerate(rules):
        yield from _restart_rule(restart, item(child(path, "restartPolicyRules"), index))


def _no_policy(path: str) -> StatusCause:
    why = "must specify restartPolicy when restart rules are used"
    return causes.required(child(path, "restartPolicy"), why)


def _restart_rule(restart: Object, path: str) -> Iterator[StatusCause]:
    if restart.get("action", "") not in _RULE_ACTIONS:
        yield causes.not_supported(child(path, "action"), restart.get("action", ""), _RULE_ACTIONS)
    codes, where = restart.get("exitCodes"), child(path, "exitCodes")
    if codes is None:
        yield causes.required(where, "must be specified")
        return
    if codes.get("operator", "") not in {"In", "NotIn"}:
        yield causes.not_supported(child(where, "operator"), codes.get("operator", ""), ("In", "NotIn"))
    if len(codes.get("values", ())) > 255:
        yield causes.too_many(child(where, "values"), len(codes["values"]), 255)


def _host_ports(listed: list[Object], path: str) -> Iterator[StatusCause]:
    """No two ports on the same port of the host."""
    taken: set[str] = set()
    for index, container in enumerate(listed):
        for number, port in enumerate(container.get("ports", ())):
            if not port.get("hostPort"):
                continue
            text = f"{port.get('protocol', '')}/{port.get('hostIP', '')}/{port['hostPort']}"
            if text in taken:
                where = child(item(path, index), "ports")
                yield causes.duplicate(child(item(where, number), "hostPort"), text)
            taken.add(text)


@rule("ports")
def _ports(container: Object, path: str, scope: Scope) -> Iterator[StatusCause]:
    names: set[str] = set()
    for index, port in enumerate(container.get("ports", ())):
        where, name = item(child(path, "ports"), index), port.get("name", "")
        wrong = list(check_field(tables.CONTAINER_PORT.fields["name"], port, where, scope))
        yield from wrong
        if name and not wrong and name in names:
            yield causes.duplicate(child(where, "name"), name)
        names.add(name)
        yield from walk(tables.CONTAINER_PORT, port, where, scope)


@rule("resize-policy")
def _resize_policy(container: Object, path: str, scope: Scope) -> Iterator[StatusCause]:
    """Upstream's faults here name the list."""
    path = child(path, "resizePolicy")
    seen: set[str] = set()
    for index, policy in enumerate(container.get("resizePolicy", ())):
        resource, restart = policy.get("resourceName", ""), policy.get("restartPolicy", "")
        if resource in seen:
            yield causes.duplicate(item(path, index), resource)
        seen.add(resource)
        yield from _one_of(resource, ("cpu", "memory"), path)
        yield from _one_of(restart, ("NotRequired", "RestartContainer"), path)
        if scope.spec.get("restartPolicy") == "Never" and restart != "NotRequired":
            why = "must be 'NotRequired' when pod `restartPolicy` is 'Never'"
            yield causes.invalid(path, restart, why)


def _one_of(value: str, options: tuple[str, ...], path: str) -> list[StatusCause]:
    if not value:
        return [causes.required(path)]
    return [] if value in options else [causes.not_supported(path, value, options)]


@rule("handler")
def _handler(handler: Object, path: str, scope: Scope) -> Iterator[StatusCause]:
    """Exactly one of the ways to ask or tell a container something."""
    record = tables.PROBE if "periodSeconds" in handler else tables.LIFECYCLE_HANDLER
    given = [name for name in HANDLERS if name in handler]
    for index, name in enumerate(given):
        if index:
            yield causes.forbidden(child(path, name), "may not specify more than 1 handler type")
        else:
            yield from check_field(record.fields[name], handler, path, scope)
    if not given:
        yield causes.required(path, "must specify a handler type")


@rule("sleep")
def _sleep(sleep: Object, path: str, scope: Scope) -> Iterator[StatusCause]:
    grace, seconds = scope.spec.get("terminationGracePeriodSeconds"), sleep.get("seconds", 0)
    if grace is not None and not 0 <= seconds <= grace:
        why = f"must be non-negative and less than terminationGracePeriodSeconds ({grace})"
        yield causes.invalid(path, seconds, why)


@rule("http-headers")
def _http_headers(action: Object, path: str, _scope: Scope) -> Iterator[StatusCause]:
    for header in action.get("httpHeaders", ()):
        name = header.get("name", "")
        yield from causes.all_invalid(child(path, "httpHeaders"), name, formats.header_name(name))


@rule("proc-mount")
def _proc_mount(context: Object, path: str, scope: Scope) -> Iterator[StatusCause]:
    yield from check_field(tables.SECURITY_CONTEXT.fields["procMount"], context, path, scope)
    if context.get("procMount") == "Unmasked" and scope.spec.get("hostUsers", True):
        why = "`hostUsers` must be false to use `Unmasked`"
        yield causes.invalid(child(path, "procMount"), "Unmasked", why)


@rule("escalation")
def _escalation(context: Object, path: str, _scope: Scope) -> Iterator[StatusCause]:
    if context.get("allowPrivilegeEscalation") is not False:
        return
    added = context.get("capabilities", {}).get("add", ())
    wrong = ["`privileged` to true"] if context.get("privileged") else []
    wrong += ["`capabilities.Add` CAP_SYS_ADMIN" for name in added if name == "CAP_SYS_ADMIN"]
    for what in wrong:
        shown: Any = go_rendering.rendered(tables.SECURITY_CONTEXT, context)
        yield causes.invalid(path, shown, f"cannot set `allowPrivilegeEscalation` to false and {what}")
