"""Rules on resource requests and limits, of containers and of whole pods (`validateResourceRequirements`)."""

from collections.abc import Callable, Iterator

from corelane import names, quantity
from corelane.embedded.apiserver.schema import defaults_and_formats
from corelane.embedded.apiserver.status_errors import StatusCause
from corelane.embedded.apiserver.stored_objects import Object
from corelane.embedded.apiserver.validation import causes
from corelane.embedded.apiserver.validation.causes import child, item
from corelane.embedded.apiserver.validation.table_rules import Scope, rule

_CONTAINER = {"cpu", "memory", "ephemeral-storage"}
_POD_LEVEL = ("cpu", "hugepages-", "memory")


def is_native(name: str) -> bool:
    """Whether a resource is Kubernetes' own, and not an extended one of a vendor."""
    return "/" not in name or "kubernetes.io/" in name


def is_extended(name: str) -> bool:
    if is_native(name) or name.startswith("requests."):
        return False
    return not names.qualified_name(f"requests.{name}")


def amount(name: str, text: str, path: str) -> Iterator[StatusCause]:
    """A resource's quantity: not negative, and whole where the resource is counted."""
    value = quantity.parse(text)
    if value.nano < 0:
        yield causes.invalid(path, text, "must be at least 0")
    if (name == "pods" or is_extended(name)) and value.milli % 1000:
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
    yield from requirements(resources, path, scope, _pod_name)
    # pod-level resources cover those of the containers (KEP-2837)
    requests, limits = resources.get("requests", {}), resources.get("limits", {})
    for column, amounts in (("requests", requests), ("limits", limits)):
        for name, text in defaults_and_formats.aggregated({"spec": spec}, column).items():
            compared = name in amounts and (column == "requests" or defaults_and_formats.is_huge_page(name))
            if compared and _exceeds(text, amounts[name]):
                why = f"must be at least the containers' {column}, {text}"
                yield causes.invalid(item(child(path, column), name), amounts[name], why)
    for index, container in enumerate(spec.get("containers") or ()):
        for name, text in container.get("resources", {}).get("limits", {}).items():
            if name in limits and _exceeds(text, limits[name]):
                where = child(item(item(child(path, "containers"), index), name), "limits")
                yield causes.invalid(where, text, f"must be at most the pod's limit {limits[name]}")


def requirements(
    resources: Object, path: str, scope: Scope, check_name: Callable[[str, str], list[StatusCause]]
) -> Iterator[StatusCause]:
    limits, requests = resources.get("limits", {}), resources.get("requests", {})
    for column, amounts in (("limits", limits), ("requests", requests)):
        for name, text in amounts.items():
            where = item(child(path, column), name)
            yield from check_name(name, where)
            yield from amount(name, text, where)
            if defaults_and_formats.is_huge_page(name) and not _whole_pages(name, text):
                yield causes.invalid(where, text, f"must be a multiple of {name}")
    for name, text in requests.items():
        yield from _against_limit(name, text, limits.get(name), path)
    resources_named = {*limits, *requests}
    if any(map(defaults_and_formats.is_huge_page, resources_named)) and not resources_named & {
        "cpu",
        "memory",
    }:
        yield causes.forbidden(path, "huge pages require cpu or memory")
    claims = {claim.get("name", "") for claim in scope.spec.get("resourceClaims", ())}
    for index, claim in enumerate(resources.get("claims", ())):
        if claim.get("name", "") not in claims:
            where = item(child(path, "claims"), index)
            yield causes.not_found(where, claim.get("name", ""), "must be a name in spec.resourceClaims")


def _against_limit(name: str, request: str, limit: str | None, path: str) -> Iterator[StatusCause]:
    overcommittable = is_native(name) and not defaults_and_formats.is_huge_page(name)
    if limit is None:
        if not overcommittable:
            yield causes.required(child(path, "limits"), f"{name} needs a limit equal to its request")
        return
    amount, most = quantity.parse(request).nano, quantity.parse(limit).nano
    if amount > most or (amount != most and not overcommittable):
        relation = "at most" if overcommittable else "equal to"
        yield causes.invalid(child(path, "requests"), request, f"must be {relation} the {name} limit {limit}")


def _whole_pages(name: str, text: str) -> bool:
    try:
        size = quantity.parse(name.removeprefix("hugepages-"))
    except quantity.QuantityError:
        return False
    return size.nano > 0 and size.whole and quantity.parse(text).value % size.value == 0


def _container_name(name: str, path: str) -> list[StatusCause]:
    faults = causes.all_invalid(path, name, names.qualified_name(name))
    known = name in _CONTAINER or defaults_and_formats.is_huge_page(name)
    if faults or is_extended(name) or "kubernetes.io/" in name or known:
        return faults
    return [causes.invalid(path, name, "must be a resource of containers, or extended (DOMAIN/NAME)")]


def _pod_name(name: str, path: str) -> list[StatusCause]:
    faults = causes.all_invalid(path, name, names.qualified_name(name))
    if faults or defaults_and_formats.is_pod_level(name):
        return faults
    return [causes.not_supported(path, name, _POD_LEVEL)]


def _exceeds(amount: str, limit: str) -> bool:
    return quantity.parse(amount).nano > quantity.parse(limit).nano
