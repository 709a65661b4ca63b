"""Rules on resource requests and limits, of containers and of whole pods (`validateResourceRequirements`)."""

from collections.abc import Callable, Iterator
from typing import Any

from corelane import names, quantity
from corelane.embedded.apiserver import pod_amounts
from corelane.embedded.apiserver.status_errors import StatusCause
from corelane.embedded.apiserver.validation import causes
from corelane.embedded.apiserver.validation.causes import child, item, key
from corelane.embedded.apiserver.validation.table_rules import Object, Scope, rule

_CONTAINER = {"cpu", "memory", "ephemeral-storage"}
_INTEGER = {
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
}
_STANDARD = {
    *_CONTAINER,
    *_INTEGER,
    *(f"{column}.{name}" for column in ("requests", "limits") for name in _CONTAINER),
    "storage",
    "requests.storage",
}
_POD_LEVEL = ("cpu", "hugepages-", "memory")
_NO_LIMIT = "Limit must be set for non overcommitable resources"


def is_native(name: str) -> bool:
    """Whether a resource is Kubernetes' own, and not an extended one of a vendor."""
    return "/" not in name or "kubernetes.io/" in name


def is_extended(name: str) -> bool:
    if is_native(name) or name.startswith("requests."):
        return False
    return not names.qualified_name(f"requests.{name}")


def is_overcommittable(name: str) -> bool:
    return is_native(name) and not pod_amounts.is_huge_page(name)


def amount(name: str, text: str, path: str) -> Iterator[StatusCause]:
    """A resource's quantity: not negative, and whole where the resource is counted."""
    value = quantity.parse(text)
    if value.nano < 0:
        yield causes.invalid(path, text, causes.NEGATIVE)
    if (name in _INTEGER or is_extended(name)) and value.milli % 1000:
        yield causes.invalid(path, text, "must be an integer")


@rule("container-resources")
def _container_resources(resources: Object, path: str, scope: Scope) -> Iterator[StatusCause]:
    yield from requirements(resources, path, scope, _container_name)


@rule("overhead")
def _overhead(spec: Object, path: str, scope: Scope) -> Iterator[StatusCause]:
    if "overhead" in spec:
        limits = {"limits": spec["overhead"]}
        yield from requirements(limits, child(path, "overhead"), scope, _container_name)


@rule("pod-resources")
def _pod_resources(spec: Object, path: str, scope: Scope) -> Iterator[StatusCause]:
    resources, path = spec.get("resources"), child(path, "resources")
    if resources is None:
        return
    if spec.get("os", {}).get("name") == "windows":
        yield causes.forbidden(path, "may not be set for a windows pod")
        return
    if "claims" in resources:
        yield causes.forbidden(child(path, "claims"), "claims may not be set for Resources at pod-level")
    yield from requirements(resources, path, scope, _pod_name)
    yield from _consistency(spec, resources, path)


def requirements(
    resources: Object, path: str, scope: Scope, check_name: Callable[[str, str], list[StatusCause]]
) -> Iterator[StatusCause]:
    limits, requests = resources.get("limits", {}), resources.get("requests", {})
    for name in sorted(limits):
        yield from _entry(name, limits[name], key(child(path, "limits"), name), check_name)
        yield from _huge_pages(name, limits[name], key(child(path, "limits"), name))
    for name in sorted(requests):
        where = key(child(path, "requests"), name)
        yield from _entry(name, requests[name], where, check_name)
        yield from _against_limit(name, requests[name], limits.get(name), path)
        yield from _huge_pages(name, requests[name], where)
    asked = {*limits, *requests}
    if any(map(pod_amounts.is_huge_page, asked)) and not asked & {"cpu", "memory"}:
        yield causes.forbidden(path, "HugePages require cpu or memory")
    yield from _claims(resources.get("claims", ()), child(path, "claims"), scope)


def _entry(
    name: str, text: str, path: str, check_name: Callable[[str, str], list[StatusCause]]
) -> Iterator[StatusCause]:
    yield from check_name(name, path)
    yield from amount(name, text, path)


def _against_limit(name: str, request: str, limit: str | None, path: str) -> Iterator[StatusCause]:
    if limit is None:
        if not is_overcommittable(name):
            yield causes.required(child(path, "limits"), _NO_LIMIT)
        return
    asked, allowed = quantity.parse(request).nano, quantity.parse(limit).nano
    if asked != allowed and not is_overcommittable(name):
        why = f"must be equal to {name} limit of {limit}"
        yield causes.invalid(child(path, "requests"), request, why)
    elif asked > allowed:
        why = f"must be less than or equal to {name} limit of {limit}"
        yield causes.invalid(child(path, "requests"), request, why)


def _huge_pages(name: str, text: str, path: str) -> Iterator[StatusCause]:
    if pod_amounts.is_huge_page(name) and not _whole_pages(name, text):
        yield causes.invalid(path, text, f"{text} is not positive integer multiple of {name}")


def _whole_pages(name: str, text: str) -> bool:
    try:
        size = quantity.parse(name.removeprefix("hugepages-"))
    except quantity.QuantityError:
        return False
    return size.nano > 0 and size.whole and quantity.parse(text).value % size.value == 0


def _container_name(name: str, path: str) -> list[StatusCause]:
    found = _name(name, path)
    if "/" not in name:
        if name not in _CONTAINER and not pod_amounts.is_huge_page(name):
            found.append(causes.invalid(path, name, "must be a standard resource for containers"))
    elif not is_native(name) and not is_extended(name):
        found.append(causes.invalid(path, name, "doesn't follow extended resource name standard"))
    return found


def _pod_name(name: str, path: str) -> list[StatusCause]:
    found = _name(name, path)
    if not found and not pod_amounts.is_pod_level(name):
        found.append(causes.not_supported(path, name, _POD_LEVEL))
    return found


def _name(name: str, path: str) -> list[StatusCause]:
    found = causes.all_invalid(path, name, names.qualified_name(name))
    standard = name in _STANDARD or name.startswith(("hugepages-", "requests.hugepages-"))
    if not found and "/" not in name and not standard:
        return [causes.invalid(path, name, "must be a standard resource type or fully qualified")]
    return found


def _claims(claims: Any, path: str, scope: Scope) -> Iterator[StatusCause]:
    known = {claim.get("name", "") for claim in scope.spec.get("resourceClaims", ())} - {""}
    seen: set[str] = set()
    partly: set[str] = set()
    for index, claim in enumerate(claims):
        where, name, request = item(path, index), claim.get("name", ""), claim.get("request", "")
        if not name:
            yield causes.required(where)
            continue
        full = f"{name}/{request}" if request else name
        if request:
            yield from causes.all_invalid(child(where, "request"), request, names.dns_label(request))
        if name in seen or full in seen:
            yield causes.duplicate(where, name if name in seen else full)
        elif not request and name in partly:
            yield causes.duplicate(where, name)
        seen.add(full)
        partly.add(name)
        if name not in known:
            listed = f": {', '.join(sorted(known))}" if known else " which is empty"
            yield causes.not_found(
                where, name, f"must be one of the names in pod.spec.resourceClaims{listed}"
            )


def _consistency(spec: Object, resources: Object, path: str) -> Iterator[StatusCause]:
    """Check that pod-level resources cover those of the containers (KEP-2837)."""
    requests, limits = resources.get("requests", {}), resources.get("limits", {})
    for name, text in sorted(pod_amounts.aggregated({"spec": spec}, "requests").items()):
        if name in requests and _exceeds(text, requests[name]):
            why = f"must be greater than or equal to aggregate container requests of {text}"
            yield causes.invalid(key(child(path, "requests"), name), requests[name], why)
    for name, text in sorted(pod_amounts.aggregated({"spec": spec}, "limits").items()):
        if pod_amounts.is_huge_page(name) and name in limits and _exceeds(text, limits[name]):
            why = f"must be greater than or equal to aggregate container limits of {text}"
            yield causes.invalid(key(child(path, "limits"), name), limits[name], why)
    for index, container in enumerate(spec.get("containers") or ()):
        for name, text in sorted(container.get("resources", {}).get("limits", {}).items()):
            if name in limits and _exceeds(text, limits[name]):
                where = child(key(item(child(path, "containers"), index), name), "limits")
                yield causes.invalid(
                    where, text, f"must be less than or equal to pod limits of {limits[name]}"
                )


def _exceeds(one: str, other: str) -> bool:
    return quantity.parse(one).nano > quantity.parse(other).nano
