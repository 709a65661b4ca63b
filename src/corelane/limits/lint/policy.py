"""The policy for manifests: by default CPU requests, memory limit = request, and no CPU limit."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from fnmatch import fnmatchcase
from typing import Annotated, Any, Final, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from corelane import settings
from corelane.limits.lint.custom_resources import CustomResource, CustomResourceSetting
from corelane.limits.lint.injectors import SidecarInjector, SidecarInjectorSetting

_NEVER: Final = 99


class Severity(IntEnum):
    """Severities: `info` is worth knowing, `warning` costs time or safety, `error` much, or is refused."""

    INFO = 1
    WARNING = 2
    ERROR = 3

    def __str__(self) -> str:
        return self.name.lower()


class Exemption(Struct, frozen=True, forbid_unknown_fields=True):
    """Findings that the policy ignores. Patterns are globs; an empty one matches everything."""

    rule: str
    reason: Annotated[str, Meta(pattern=r"\S", description="the reason why these findings are acceptable")]
    kind: str = ""
    namespace: str = ""
    name: str = ""
    container: str = ""

    def covers(self, rule: str, kind: str, namespace: str, name: str, container: str) -> bool:
        texts = (rule, kind, namespace, name, container)
        globs = (self.rule, self.kind, self.namespace, self.name, self.container)
        return all(not glob or fnmatchcase(text, glob) for text, glob in zip(texts, globs, strict=True))


@dataclass(frozen=True, slots=True)
class Policy:
    """The choices, named as in a policy file. `fail_on` is the least severity that fails a run."""

    cpu_request: str = "required"
    cpu_limit: str = "never"
    batch_cpu_limit: str = "allowed"
    memory_limit: str = "equal-to-request"
    exclusive_cpus: bool = False
    """Whether nodes allocate exclusive CPUs to Guaranteed containers (static CPU manager; the kubelet's
    default is none)."""
    node_cpus: int = 0
    """CPUs of the largest node that pods may land on: how far threads spread; 0 where unknown."""
    cfs_period_us: int = 100_000
    fail_on: int = int(Severity.WARNING)
    severities: Mapping[str, Severity | None] = field(default_factory=dict)
    """By rule; None switches it off."""
    exemptions: tuple[Exemption, ...] = ()
    custom_resources: tuple[CustomResource, ...] = ()
    """Kinds with containers beyond those that are known."""
    sidecar_injectors: tuple[SidecarInjector, ...] = ()
    """Injectors beyond those that are known."""


STATIC: Final = Policy(exclusive_cpus=True)
"""For advice, which sees what a pod uses and so can refute exclusive CPUs that nothing allocated."""

_LEVELS: Final = "info, warning, error or off"
_Level = Annotated[Literal["info", "warning", "error", "off"] | bool, Meta(description=_LEVELS)]
"""YAML 1.1 reads a bare off as false."""
_Period = Annotated[
    Annotated[int, Meta(ge=1, le=1000)] | Annotated[str, Meta(pattern="^(?:[1-9][0-9]{0,2}|1000)(?:ms)?$")],
    Meta(description="a period from 1ms to 1000ms, such as 100ms"),
]


class _PolicyFile(Struct, forbid_unknown_fields=True, rename=settings.camel):
    """A policy as a file has it."""

    cpu_request: Literal["required", "optional"] | UnsetType = UNSET
    cpu_limit: Literal["never", "allowed", "equal-to-request"] | UnsetType = UNSET
    batch_cpu_limit: Literal["allowed", "never"] | UnsetType = UNSET
    memory_limit: Literal["equal-to-request", "required", "optional"] | UnsetType = UNSET
    exclusive_cpus: bool | UnsetType = UNSET
    node_cpus: settings.Count | UnsetType = UNSET
    cfs_period: _Period | UnsetType = UNSET
    fail_on: Literal["info", "warning", "error", "never"] | UnsetType = UNSET
    severity: dict[str, _Level] | UnsetType = UNSET
    ignore: list[Exemption] | UnsetType = UNSET
    custom_resources: list[CustomResourceSetting] | UnsetType = UNSET
    sidecar_injectors: list[SidecarInjectorSetting] | UnsetType = UNSET


def from_mapping(tree: Any, rules: Collection[str], base: Policy | None = None) -> Policy:
    """Return the policy of a file's values over `base`. Raises SettingsError."""
    given = settings.given(settings.convert(tree, _PolicyFile))
    if period := given.pop("cfs_period", None):
        given["cfs_period_us"] = int(str(period).removesuffix("ms")) * 1000
    if level := given.get("fail_on"):
        given["fail_on"] = _NEVER if level == "never" else int(Severity[level.upper()])
    if "severity" in given:
        levels = given.pop("severity")
        given["severities"] = {
            _rule("severity: key", rule, rules): _severity(f"severity.{rule}", level)
            for rule, level in levels.items()
        }
    if "ignore" in given:
        given["exemptions"] = tuple(given.pop("ignore"))
        for index, exemption in enumerate(given["exemptions"]):
            _rule(f"ignore[{index}].rule", exemption.rule, rules)
    for name in ("custom_resources", "sidecar_injectors"):
        if name in given:
            given[name] = tuple(
                setting.read(f"{settings.camel(name)}[{index}]") for index, setting in enumerate(given[name])
            )
    return replace(base or Policy(), **given)


def _rule(field: str, rule: str, rules: Collection[str]) -> str:
    if rule not in rules:
        raise settings.invalid(field, rule, "a rule that corelane limits lint --rules lists")
    return rule


def _severity(field: str, level: str | bool) -> Severity | None:
    if level is True:
        raise settings.invalid(field, level, _LEVELS)
    return None if level in ("off", False) else Severity[str(level).upper()]
