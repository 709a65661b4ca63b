"""Rules on a pod's specification that look at more than one field."""

from collections.abc import Iterator

from corelane import names
from corelane.embedded.apiserver import formats
from corelane.embedded.apiserver.codec import go_rendering
from corelane.embedded.apiserver.schema import pod_spec as tables
from corelane.embedded.apiserver.status_errors import StatusCause
from corelane.embedded.apiserver.validation import causes
from corelane.embedded.apiserver.validation.causes import child, item
from corelane.embedded.apiserver.validation.container_rules import untrimmed_image
from corelane.embedded.apiserver.validation.table_rules import Object, Scope, check_field, rule

_LISTS = ("initContainers", "containers", "ephemeralContainers")


def each_container(spec: Object, path: str) -> Iterator[tuple[Object, str]]:
    """Every container of a pod with its path, in upstream's order."""
    for name in _LISTS:
        for index, container in enumerate(spec.get(name) or ()):
            yield container, item(child(path, name), index)


def create(pod: Object) -> Iterator[StatusCause]:
    """Check rules for new pods only."""
    spec = pod["spec"]
    if spec.get("ephemeralContainers"):
        yield causes.forbidden("spec.ephemeralContainers", "cannot be set on create")
    if spec.get("nodeName") and spec.get("schedulingGates"):
        why = "cannot be set until all schedulingGates have been cleared"
        yield causes.forbidden("spec.nodeName", why)


def whole(pod: Object) -> Iterator[StatusCause]:
    """Check rules for a pod beyond those of its specification."""
    spec = pod["spec"]
    if not spec.get("serviceAccountName"):
        yield from _tokens(spec)
    for name in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(name) or ()):
            yield from untrimmed_image(container, item(child("spec", name), index))


def _tokens(spec: Object) -> Iterator[StatusCause]:
    for index, volume in enumerate(spec.get("volumes", ())):
        for number, source in enumerate(volume.get("projected", {}).get("sources") or ()):
            if "serviceAccountToken" in source:
                sources = child(item("spec.volumes", index), "projected", "sources")
                where = child(item(sources, number), "serviceAccountToken")
                yield causes.forbidden(where, "must not be specified when serviceAccountName is not set")


@rule("resource-claims")
def _resource_claims(spec: Object, path: str, _scope: Scope) -> Iterator[StatusCause]:
    seen: set[str] = set()
    for index, claim in enumerate(spec.get("resourceClaims", ())):
        where, name = item(child(path, "resourceClaims"), index), claim.get("name", "")
        if not name:
            yield causes.required(child(where, "name"))
        elif name in seen:
            yield causes.duplicate(child(where, "name"), name)
        else:
            yield from causes.all_invalid(child(where, "name"), name, names.dns_label(name))
        seen.add(name)
        yield from _claim_source(claim, where)


def _claim_source(claim: Object, path: str) -> Iterator[StatusCause]:
    given = [name for name in ("resourceClaimName", "resourceClaimTemplateName") if name in claim]
    shown = go_rendering.rendered(tables.POD_RESOURCE_CLAIM, claim)
    if len(given) > 1:
        why = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
        yield causes.invalid(path, shown, why)
    if not given:
        why = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
        yield causes.invalid(path, shown, why)
    for name in given:
        yield from causes.all_invalid(child(path, name), claim[name], names.dns_subdomain(claim[name]))


@rule("host-ports")
def _host_ports(spec: Object, path: str, _scope: Scope) -> Iterator[StatusCause]:
    if not spec.get("hostNetwork"):
        return
    for index, container in enumerate(spec.get("containers") or ()):
        for number, port in enumerate(container.get("ports", ())):
            host = port.get("hostPort", 0)
            if host != port.get("containerPort", 0):
                where = child(item(child(path, "containers"), index), "ports")
                why = "must match `containerPort` when `hostNetwork` is true"
                yield causes.invalid(child(item(where, number), "hostPort"), host, why)


@rule("dns-config")
def _dns_config(spec: Object, path: str, _scope: Scope) -> Iterator[StatusCause]:
    config, path = spec.get("dnsConfig"), child(path, "dnsConfig")
    if spec.get("dnsPolicy") == "None" and not (config or {}).get("nameservers"):
        if config is None:
            yield causes.required(path, "must provide `dnsConfig` when `dnsPolicy` is None")
        else:
            why = "must provide at least one DNS nameserver when `dnsPolicy` is None"
            yield causes.required(child(path, "nameservers"), why)
        return
    if config is not None:
        yield from _nameservers(config.get("nameservers", []), child(path, "nameservers"))
        yield from _searches(config.get("searches", []), child(path, "searches"))
        for index, option in enumerate(config.get("options", ())):
            if not option.get("name"):
                yield causes.required(item(child(path, "options"), index), "must not be empty")


def _nameservers(servers: list[str], path: str) -> Iterator[StatusCause]:
    if len(servers) > 3:
        yield causes.invalid(path, servers, "must not have more than 3 nameservers")
    for index, server in enumerate(servers):
        yield from causes.all_invalid(item(path, index), server, formats.ip_address(server))


def _searches(searches: list[str], path: str) -> Iterator[StatusCause]:
    if len(searches) > 32:
        yield causes.invalid(path, searches, "must not have more than 32 search paths")
    if len(" ".join(searches)) > 2048:
        why = "must not have more than 2048 characters (including spaces) in the search list"
        yield causes.invalid(path, searches, why)
    for index, search in enumerate(searches):
        if search != ".":
            name = search.removesuffix(".")
            yield from causes.all_invalid(item(path, index), name, names.dns_subdomain_underscored(name))


@rule("host-users")
def _host_users(spec: Object, path: str, _scope: Scope) -> Iterator[StatusCause]:
    if spec.get("hostUsers", True):
        return
    for name, shown in (("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")):
        if spec.get(name):
            yield causes.forbidden(child(path, shown), "when `hostUsers` is false")


@rule("hostname-override")
def _hostname_override(spec: Object, path: str, scope: Scope) -> Iterator[StatusCause]:
    name, where = spec.get("hostnameOverride"), child(path, "hostnameOverride")
    if name is None:
        return
    if spec.get("setHostnameAsFQDN"):
        yield causes.forbidden(where, "may not be specified when setHostnameAsFQDN is true")
    if spec.get("hostNetwork"):
        yield causes.forbidden(where, "may not be specified when hostNetwork is true")
    if len(name) > 64:
        yield causes.too_long(where, 64)
    yield from check_field(tables.POD_SPEC.fields["hostnameOverride"], spec, path, scope)


@rule("file-keys")
def _file_keys(spec: Object, path: str, _scope: Scope) -> Iterator[StatusCause]:
    """KEP-3721: files with environment variables live in volumes that are empty directories."""
    volumes = {volume.get("name", ""): volume for volume in spec.get("volumes", ())}
    for container, where in each_container(spec, path):
        for index, env in enumerate(container.get("env", ())):
            reference = env.get("valueFrom", {}).get("fileKeyRef")
            if reference is None:
                continue
            name = reference.get("volumeName", "")
            spot = child(item(child(where, "env"), index), "valueFrom", "fileKeyRef", "volumeName")
            if name not in volumes:
                yield causes.not_found(spot, name)
            elif "emptyDir" not in volumes[name]:
                yield causes.invalid(spot, name, "referenced volume must be of type emptyDir")
