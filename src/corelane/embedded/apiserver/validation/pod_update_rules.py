"""Rules on updates of pods and of their status: what may change, and how."""

import ipaddress
from collections.abc import Iterator
from copy import deepcopy

from corelane import names
from corelane.embedded.apiserver.status_errors import StatusCause
from corelane.embedded.apiserver.stored_objects import Object
from corelane.embedded.apiserver.validation import causes
from corelane.embedded.apiserver.validation.causes import child, item, key, unless_equal

_MAY_CHANGE = (
    "only images of containers and initContainers, activeDeadlineSeconds, more tolerations and fewer "
    "schedulingGates may change"
)
_MIRROR = "kubernetes.io/config.mirror"
_SYSTEM_CONDITIONS = {"PodScheduled", "Ready", "Initialized"}
_STATUSES = (
    ("containerStatuses", "containers"),
    ("initContainerStatuses", "initContainers"),
    ("ephemeralContainerStatuses", ""),
)
_TERMS = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"


def pod(new: Object, old: Object) -> Iterator[StatusCause]:
    """Upstream: `ValidatePodUpdate`, from where the specification's own rules end."""
    after, before = new["spec"], old["spec"]
    yield from _mirror(new, old)
    resized = [
        name
        for name in ("containers", "initContainers")
        if len(after.get(name) or ()) != len(before.get(name) or ())
    ]
    if resized:
        yield causes.forbidden(child("spec", resized[0]), "containers cannot be added or removed")
        return
    wrong = list(_deadline(after.get("activeDeadlineSeconds"), before.get("activeDeadlineSeconds")))
    yield from wrong
    if wrong and after.get("activeDeadlineSeconds") is not None:
        return
    yield from _tolerations(after, before)
    yield from _gates(after, before)
    if after == before:
        return
    reverted = _without_allowed_changes(after, before)
    if before.get("schedulingGates"):
        yield from _gated(reverted, before)
    if reverted != before:
        changed = sorted(
            name for name in reverted.keys() | before.keys() if reverted.get(name) != before.get(name)
        )
        yield causes.forbidden("spec", f"changed: {', '.join(changed)}; {_MAY_CHANGE}")


def _mirror(new: Object, old: Object) -> Iterator[StatusCause]:
    after, before = (pod["metadata"].get("annotations", {}) for pod in (new, old))
    if after.get(_MIRROR) != before.get(_MIRROR):
        yield causes.forbidden(key("metadata.annotations", _MIRROR), causes.IMMUTABLE)


def _deadline(after: int | None, before: int | None) -> Iterator[StatusCause]:
    path = "spec.activeDeadlineSeconds"
    if before is not None and (after is None or after > before):
        yield causes.invalid(path, after, f"must be at most the present value, {before}")


def _tolerations(new: Object, old: Object) -> Iterator[StatusCause]:
    present = [_timeless(toleration) for toleration in new.get("tolerations", ())]
    if any(_timeless(toleration) not in present for toleration in old.get("tolerations", ())):
        yield causes.forbidden("spec.tolerations", "of a toleration only tolerationSeconds may change")


def _timeless(toleration: Object) -> Object:
    return {name: value for name, value in toleration.items() if name != "tolerationSeconds"}


def _gates(new: Object, old: Object) -> Iterator[StatusCause]:
    before = {gate.get("name", "") for gate in old.get("schedulingGates", ())}
    for index, gate in enumerate(new.get("schedulingGates", ())):
        if gate.get("name", "") not in before:
            where = child(item("spec.schedulingGates", index), "name")
            yield causes.forbidden(where, "scheduling gates can only be removed")


def _without_allowed_changes(new: Object, old: Object) -> Object:
    """The new specification with what may change put back."""
    reverted = deepcopy(new)
    for name in ("containers", "initContainers"):
        for container, before in zip(reverted.get(name) or (), old.get(name) or (), strict=True):
            _put_back(container, before, "image")
    for name in ("activeDeadlineSeconds", "schedulingGates", "tolerations"):
        _put_back(reverted, old, name)
    return reverted


def _put_back(reverted: Object, old: Object, name: str) -> None:
    reverted.pop(name, None)
    if name in old:
        reverted[name] = deepcopy(old[name])


def _gated(reverted: Object, old: Object) -> Iterator[StatusCause]:
    """KEP-3838: while a pod is gated its node selection may be narrowed."""
    after, before = reverted.get("nodeSelector", {}), old.get("nodeSelector", {})
    if any(after.get(name) != value for name, value in before.items()):
        yield causes.invalid("spec.nodeSelector", after, "labels can only be added")
    _put_back(reverted, old, "nodeSelector")
    terms, old_terms = _node_terms(reverted), _node_terms(old)
    if old_terms and len(old_terms) != len(terms):
        yield causes.invalid(_TERMS, terms, "terms cannot be added or removed")
    elif old_terms:
        for index, (term, old_term) in enumerate(zip(terms, old_terms, strict=True)):
            if not _only_adds(term, old_term):
                yield causes.invalid(item(_TERMS, index), term, "expressions can only be added")
    affinity = reverted.setdefault("affinity", {})
    _put_back(affinity, old.get("affinity", {}), "nodeAffinity")
    if not affinity and not old.get("affinity"):
        _put_back(reverted, old, "affinity")


def _node_terms(spec: Object) -> list[Object]:
    node = spec.get("affinity", {}).get("nodeAffinity", {})
    required = node.get("requiredDuringSchedulingIgnoredDuringExecution", {})
    return list(required.get("nodeSelectorTerms") or ())


def _only_adds(new: Object, old: Object) -> bool:
    columns = ("matchExpressions", "matchFields")
    if not any(old.get(name) for name in columns):
        return not any(new.get(name) for name in columns)
    return all(new.get(name, [])[: len(old.get(name, []))] == old.get(name, []) for name in columns)


# --- status


def status(new: Object, old: Object) -> Iterator[StatusCause]:
    """Upstream: `ValidatePodStatusUpdate`, for what scheduler and agents write."""
    after, before = new["status"], old["status"]
    yield from _mirror(new, old)
    yield from _conditions(after.get("conditions", ()))
    nominated, where = after.get("nominatedNodeName", ""), "status.nominatedNodeName"
    if nominated and nominated != before.get("nominatedNodeName", ""):
        yield from causes.all_invalid(where, nominated, names.dns_subdomain(nominated))
        if old["spec"].get("nodeName"):
            yield causes.forbidden(where, "cannot be set on a pod that is bound to a node")
    yield from _not_negative(after, "status")
    yield from unless_equal("status.qosClass", after.get("qosClass", ""), before.get("qosClass", ""))
    for name, containers in _STATUSES:
        yield from _transitions(name, containers, new, old)
    for name in ("podIPs", "hostIPs"):
        yield from _addresses(after.get(name, ()), before.get(name, ()), child("status", name))


def _conditions(conditions: list[Object]) -> Iterator[StatusCause]:
    for index, condition in enumerate(conditions):
        where, kind = item("status.conditions", index), condition.get("type", "")
        yield from _not_negative(condition, where)
        if kind not in _SYSTEM_CONDITIONS:
            yield from causes.all_invalid(child(where, "Type"), kind, names.qualified_name(kind))


def _not_negative(holder: Object, path: str) -> Iterator[StatusCause]:
    generation = holder.get("observedGeneration", 0)
    if generation < 0:
        yield causes.invalid(child(path, "observedGeneration"), generation, "must be at least 0")


def _addresses(new: list[Object], old: list[Object], path: str) -> Iterator[StatusCause]:
    """One address of each family; an address that was there before stays as it is."""
    versions = []
    for index, address in enumerate(new):
        text = address.get("ip", "")
        try:
            versions.append(ipaddress.ip_address(text).version)
        except ValueError:
            if address not in old:
                yield causes.invalid(item(path, index), text, "must be an IP address")
    if len(new) > 1 and sorted(versions) != [4, 6]:
        yield causes.invalid(path, new, "must have at most one address of each IP family")


def _transitions(name: str, containers: str, new: Object, old: Object) -> Iterator[StatusCause]:
    """A container that ended stays so, unless it may be restarted."""
    if containers and _all_may_restart(old["spec"]):
        return
    after = {status.get("name", ""): status for status in new["status"].get(name, ())}
    specs = {spec.get("name", ""): spec for spec in old["spec"].get(containers) or ()} if containers else {}
    for index, before in enumerate(old["status"].get(name, ())):
        ended, now = before.get("state", {}).get("terminated"), after.get(before.get("name", ""))
        if ended is None or now is None or "terminated" in now.get("state", {}):
            continue
        container = specs.get(before.get("name", ""))
        if container is None or not _may_restart(container, old["spec"], ended.get("exitCode", 0)):
            where = child(item(child("status", name), index), "state")
            yield causes.forbidden(where, "a terminated container that is not restarted stays terminated")


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
