"""Rules on updates of a pod's status (upstream: `ValidatePodStatusUpdate`)."""

from collections.abc import Iterator

from corelane import names
from corelane.embedded.apiserver import formats
from corelane.embedded.apiserver.status_errors import StatusCause
from corelane.embedded.apiserver.validation import causes, update_rules
from corelane.embedded.apiserver.validation.causes import child, item, unless_equal
from corelane.embedded.apiserver.validation.kind_rules import dual_stack
from corelane.embedded.apiserver.validation.table_rules import Object

_SYSTEM_CONDITIONS = {"PodScheduled", "Ready", "Initialized"}
_STATUSES = (
    ("containerStatuses", "containers"),
    ("initContainerStatuses", "initContainers"),
    ("ephemeralContainerStatuses", ""),
)
_ALIVE_AGAIN = "may not be transitioned to non-terminated state"


def update(new: Object, old: Object) -> Iterator[StatusCause]:
    status, before, path = new["status"], old["status"], "status"
    yield from update_rules.pod_annotations(new, old)
    yield from _conditions(status.get("conditions", []), child(path, "conditions"))
    yield from _nominated(status.get("nominatedNodeName", ""), old, child(path, "nominatedNodeName"))
    if status.get("observedGeneration", 0) < 0:
        where = child(path, "observedGeneration")
        yield causes.invalid(where, status["observedGeneration"], "must be a non-negative integer")
    yield from unless_equal(child(path, "qosClass"), status.get("qosClass", ""), before.get("qosClass", ""))
    for name, containers in _STATUSES:
        yield from _transitions(name, containers, new, old)
    yield from _claims(new, child(path, "resourceClaimStatuses"))
    yield from _addresses(status.get("podIPs", []), before.get("podIPs", []), child(path, "podIPs"))
    yield from _host_addresses(status, before)
    for name, _ in _STATUSES:
        yield from _users(status.get(name, []), child(path, name), new)


def _conditions(conditions: list[Object], path: str) -> Iterator[StatusCause]:
    for index, condition in enumerate(conditions):
        generation, kind = condition.get("observedGeneration", 0), condition.get("type", "")
        if generation < 0:
            where = child(item(path, index), "observedGeneration")
            yield causes.invalid(where, generation, "must be a non-negative integer")
        if kind not in _SYSTEM_CONDITIONS:
            where = child(item(path, index), "Type")
            yield from causes.all_invalid(where, kind, names.qualified_name(kind))


def _nominated(name: str, old: Object, path: str) -> Iterator[StatusCause]:
    if not name or name == old["status"].get("nominatedNodeName", ""):
        return
    yield from causes.all_invalid(path, name, names.dns_subdomain(name))
    if old["spec"].get("nodeName"):
        yield causes.forbidden(path, "may not be set on pods that are already bound to a node")


def _transitions(name: str, containers: str, new: Object, old: Object) -> Iterator[StatusCause]:
    """A container that ended stays so, unless it may be restarted."""
    if containers and _all_may_restart(old["spec"]):
        return
    after = {status.get("name", ""): status for status in new["status"].get(name, ())}
    specs = {one.get("name", ""): one for one in old["spec"].get(containers) or ()} if containers else {}
    for index, status in enumerate(old["status"].get(name, ())):
        ended, now = status.get("state", {}).get("terminated"), after.get(status.get("name", ""))
        if ended is None or now is None or "terminated" in now.get("state", {}):
            continue
        container = specs.get(status.get("name", ""))
        if container is None or not _may_restart(container, old["spec"], ended.get("exitCode", 0)):
            where = child(item(child("status", name), index), "state")
            yield causes.forbidden(where, _ALIVE_AGAIN)


def _all_may_restart(spec: Object) -> bool:
    """KEP-5532: a rule of one container may restart all of them."""
    listed = (*(spec.get("containers") or ()), *spec.get("initContainers", ()))
    rules = [rule for container in listed for rule in container.get("restartPolicyRules", ())]
    return any(rule.get("action") == "RestartAllContainers" for rule in rules)


def _may_restart(container: Object, spec: Object, exit_code: int) -> bool:
    for rule in container.get("restartPolicyRules", ()):
        codes = rule.get("exitCodes", {})
        inside = exit_code in codes.get("values", ())
        if codes and inside == (codes.get("operator") == "In"):
            return True
    policy = container.get("restartPolicy", spec.get("restartPolicy"))
    return policy == "Always" or (policy == "OnFailure" and exit_code != 0)


def _claims(new: Object, path: str) -> Iterator[StatusCause]:
    known = {claim.get("name", "") for claim in new["spec"].get("resourceClaims", ())}
    seen: set[str] = set()
    for index, status in enumerate(new["status"].get("resourceClaimStatuses", ())):
        where, name = item(path, index), status.get("name", "")
        if name not in known:
            why = "must match the name of an entry in `spec.resourceClaims`"
            yield causes.invalid(child(where, "name"), name, why)
        if name in seen:
            yield causes.duplicate(child(where, "name"), name)
        seen.add(name)


def _addresses(new: list[Object], old: list[Object], path: str) -> Iterator[StatusCause]:
    before = [one.get("ip", "") for one in old]
    texts = [one.get("ip", "") for one in new]
    for index, text in enumerate(texts):
        if text not in before:
            yield from causes.all_invalid(item(path, index), text, formats.ip_address(text))
    if len(texts) > 1 and not dual_stack(texts):
        shown = [{"IP": text} for text in texts]
        yield causes.invalid(path, shown, "may specify no more than one IP for each IP family")


def _host_addresses(new: Object, old: Object) -> Iterator[StatusCause]:
    listed, path = new.get("hostIPs", []), "status.hostIPs"
    if listed and new.get("hostIP", "") != listed[0].get("ip", ""):
        where = child(item(path, 0), "ip")
        yield causes.invalid(where, listed[0].get("ip", ""), "must be equal to `hostIP`")
    yield from _addresses(listed, old.get("hostIPs", []), path)


def _users(statuses: list[Object], path: str, pod: Object) -> Iterator[StatusCause]:
    windows = pod["spec"].get("os", {}).get("name") == "windows"
    for index, status in enumerate(statuses):
        linux, where = status.get("user", {}).get("linux"), child(item(path, index), "user", "linux")
        if linux is None:
            continue
        if windows:
            yield causes.forbidden(where, "cannot be set for a windows pod")
            continue
        for name in ("uid", "gid"):
            number = linux.get(name, 0)
            yield from causes.all_invalid(child(where, name), number, formats.user_id(number))
