"""Rules on the sources of volumes that only storage drivers of old can mount."""

from collections.abc import Iterator
from typing import Final

from corelane.embedded.apiserver.status_errors import StatusCause
from corelane.embedded.apiserver.validation import causes
from corelane.embedded.apiserver.validation.causes import child
from corelane.embedded.apiserver.validation.table_rules import Object, Scope, rule

_CACHING: Final = ("None", "ReadOnly", "ReadWrite")
_KINDS: Final = ("Dedicated", "Managed", "Shared")
_MANAGED: Final = (
    "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}"
)
_BLOB: Final = "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"
_PAIRS: Final = "must be a host:port pair or multiple pairs separated by commas"
_LONGEST_TENANT: Final = 64
_LARGEST_UNIT: Final = 255


@rule("azure-disk")
def _azure_disk(source: Object, path: str, _scope: Scope) -> Iterator[StatusCause]:
    """The address is a managed disk's or a blob's, as the kind says (`validateAzureDisk`)."""
    mode, kind, address = source.get("cachingMode"), source.get("kind"), source.get("diskURI", "")
    if mode is not None and mode not in _CACHING:
        yield causes.not_supported(child(path, "cachingMode"), mode, _CACHING)
    if kind is None:
        return
    if kind not in _KINDS:
        yield causes.not_supported(child(path, "kind"), kind, _KINDS)
    start, form = ("/subscriptions/", _MANAGED) if kind == "Managed" else ("https://", _BLOB)
    if not address.startswith(start):
        yield causes.not_supported(child(path, "diskURI"), address, (form,))


@rule("quobyte-registry")
def _quobyte_registry(source: Object, path: str, _scope: Scope) -> Iterator[StatusCause]:
    registry = source.get("registry", "")
    if not registry:
        yield causes.required(child(path, "registry"), _PAIRS)
    elif len(source.get("tenant", "").encode()) > _LONGEST_TENANT:
        why = "must be a UUID and may not exceed a length of 64 characters"
        yield causes.required(child(path, "tenant"), why)
    else:
        for pair in registry.split(","):
            if not _is_pair(pair):
                yield causes.invalid(child(path, "registry"), registry, _PAIRS)


def _is_pair(text: str) -> bool:
    """Whether Go's net.SplitHostPort takes a text: `host:port` or `[host]:port`, either part may be empty."""
    host, colon, port = text.rpartition(":")
    if host.startswith("["):
        host, inner_end, rest = host[1:].partition("]")
        if not inner_end or rest:
            return False
    elif ":" in host:
        return False
    return bool(colon) and not set(host + port) & set("[]")


@rule("flocker-dataset")
def _flocker_dataset(source: Object, path: str, _scope: Scope) -> Iterator[StatusCause]:
    name, uid = source.get("datasetName", ""), source.get("datasetUUID", "")
    if not name and not uid:
        yield causes.required(path, "one of datasetName and datasetUUID is required")
    if name and uid:
        why = "datasetName and datasetUUID can not be specified simultaneously"
        yield causes.invalid(path, "resource", why)
    if "/" in name:
        yield causes.invalid(child(path, "datasetName"), name, "must not contain '/'")


@rule("fibre-channel")
def _fibre_channel(source: Object, path: str, _scope: Scope) -> Iterator[StatusCause]:
    """Names of targets, which need a unit's number, or worldwide identifiers (`validateFCVolumeSource`)."""
    targets, unit, where = source.get("targetWWNs"), source.get("lun"), child(path, "targetWWNs")
    if not targets:
        if not source.get("wwids"):
            yield causes.required(where, "must specify either targetWWNs or wwids, but not both")
        return
    if source.get("wwids"):
        yield causes.invalid(where, targets, "targetWWNs and wwids can not be specified simultaneously")
    if unit is None:
        yield causes.required(child(path, "lun"), "lun is required if targetWWNs is specified")
    elif not 0 <= unit <= _LARGEST_UNIT:
        yield causes.invalid(child(path, "lun"), unit, "must be between 0 and 255, inclusive")
