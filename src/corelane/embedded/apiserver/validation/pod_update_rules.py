"""Rules on updates of pods and of their status: what may change, and how."""

import ipaddress
from collections.abc import Iterator
from copy import deepcopy

from corelane import names
from corelane.embedded.apiserver.status_errors import StatusCause
from corelane.embedded.apiserver.stored_objects import Object
from corelane.embedded.apiserver.validation import causes
from corelane.embedded.apiserver.validation.causes import child, item, unless_equal

_MAY_CHANGE = (
    "only images of containers and initContainers, activeDeadlineSeconds, more tolerations and fewer "
    "schedulingGates may change"
)
_SYSTEM_CONDITIONS = {"PodScheduled", "Ready", "Initialized"}
_STATUSES = (
    ("containerStatuses", "containers"),
    ("initContainerStatuses", "initContainers"),
    ("ephemeralContainerStatuses", ""),
)


def pod(new: Object, old: Object) -> Iterator[StatusCause]:
    """Upstream: `ValidatePodUpdate`, from where the specification's own rules end."""
    after, before = new["spec"], old["spec"]
    resized = [
        name
        for name in ("containers", "initContainers")
        if len(after.get(name) or ()) != len(before.get(name) or ())
    ]
    if resized:
        yield causes.forbidden(child("spec", resized[0]), "containers cannot be added or removed")
        return
    deadline, limit = after.get("activeDeadlineSeconds"), before.get("activeDeadlineSeconds")
    if limit is not None and (deadline is None or deadline > limit):
        why = f"must be at most the present value, {limit}"
        yield causes.invalid("spec.activeDeadlineSeconds", deadline, why)
        if deadline is not None:
            return
    present = [_timeless(toleration) for toleration in after.get("tolerations", ())]
    if any(_timeless(toleration) not in present for toleration in before.get("tolerations", ())):
        yield causes.forbidden("spec.tolerations", "of a toleration only tolerationSeconds may change")
    gates = {gate.get("name", "") for gate in before.get("schedulingGates", ())}
    for index, gate in enumerate(after.get("schedulingGates", ())):
        if gate.get("name", "") not in gates:
            where = child(item("spec.schedulingGates", index), "name")
            yield causes.forbidden(where, "scheduling gates can only be removed")
    reverted = _without_allowed_changes(after, before)
    if reverted != before:
        changed = sorted(
            name for name in reverted.keys() | before.keys() if reverted.get(name) != before.get(name)
        )
        yield causes.forbidden("spec", f"changed: {', '.join(changed)}; {_MAY_CHANGE}")


def _timeless(toleration: Object) -> Object:
    return {name: value for name, value in toleration.items() if name != "tolerationSeconds"}


def _without_allowed_changes(new: Object, old: Object) -> Object:
    """Return the new specification with what may change put back.

    While a pod is gated its node selection may change, too (KEP-3838): no scheduler has looked at it.
    """
    reverted = deepcopy(new)
    for name in ("containers", "initContainers"):
        for container, before in zip(reverted.get(name) or (), old.get(name) or (), strict=True):
            _put_back(container, before, "image")
    for name in ("activeDeadlineSeconds", "schedulingGates", "tolerations"):
        _put_back(reverted, old, name)
    if old.get("schedulingGates"):
        _put_back(reverted, old, "nodeSelector")
        affinity = reverted.setdefault("affinity", {})
        _put_back(affinity, old.get("affinity", {}), "nodeAffinity")
        if not affinity and not old.get("affinity"):
            _put_back(reverted, old, "affinity")
    return reverted


def _put_back(reverted: Object, old: Object, name: str) -> None:
    reverted.pop(name, None)
    if name in old:
        reverted[name] = deepcopy(old[name])


# --- status


def status(new: Object, old: Object) -> Iterator[StatusCause]:
    """Upstream: `ValidatePodStatusUpdate`, for what scheduler and agents write."""
    after, before = new["status"], old["status"]
    for index, condition in enumerate(after.get("conditions", ())):
        where, kind = item("status.conditions", index), condition.get("type", "")
        yield from _not_negative(condition, where)
        if kind not in _SYSTEM_CONDITIONS:
            yield from causes.all_invalid(child(where, "Type"), kind, names.qualified_name(kind))
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
    after = {status.get("name", ""): status for status in new["status"].get(name, ())}
    specs = {spec.get("name", ""): spec for spec in old["spec"].get(containers) or ()} if containers else {}
    for index, before in enumerate(old["status"].get(name, ())):
        ended, now = before.get("state", {}).get("terminated"), after.get(before.get("name", ""))
        if ended is None or now is None or "terminated" in now.get("state", {}):
            continue
        container = specs.get(before.get("name", ""))
        policy = container.get("restartPolicy", old["spec"].get("restartPolicy")) if container else "Never"
        if policy != "Always" and (policy != "OnFailure" or not ended.get("exitCode")):
            where = child(item(child("status", name), index), "state")
            yield causes.forbidden(where, "a terminated container that is not restarted stays terminated")
