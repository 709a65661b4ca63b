"""The policy for manifests: by default CPU requests, memory limit = request, and no CPU limit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import IntEnum
from fnmatch import fnmatchcase
from typing import Any, Final, TypeVar

from corelane.limits.lint import custom_resources, injectors
from corelane.limits.lint.custom_resources import CustomResource
from corelane.limits.lint.injectors import SidecarInjector

T = TypeVar("T")

CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    "cpuRequest": ("required", "optional"),
    "cpuLimit": ("never", "allowed", "equal-to-request"),
    "batchCpuLimit": ("allowed", "never"),
    "memoryLimit": ("equal-to-request", "required", "optional"),
}
FAIL_ON: Final = ("info", "warning", "error", "never")
_NEVER: Final = 99


class Severity(IntEnum):
    """How bad: `info` is worth knowing, `warning` costs time or safety, `error` much of it, or is refused."""

    INFO = 1
    WARNING = 2
    ERROR = 3

    def __str__(self) -> str:
        return self.name.lower()


class PolicyError(ValueError):
    """An invalid policy; the message names the field, its value, and the valid values."""


@dataclass(frozen=True, slots=True)
class Exemption:
    """Findings that the policy ignores. Patterns are globs; an empty one matches everything."""

    rule: str
    reason: str
    kind: str = ""
    namespace: str = ""
    name: str = ""
    container: str = ""

    def covers(self, rule: str, kind: str, namespace: str, name: str, container: str) -> bool:
        found = (rule, kind, namespace, name, container)
        wanted = (self.rule, self.kind, self.namespace, self.name, self.container)
        return all(not glob or fnmatchcase(text, glob) for text, glob in zip(found, wanted, strict=True))


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


def severity(name: str) -> int:
    """The least severity that fails a run, by its name; `never` is above all. Raises PolicyError."""
    if name not in FAIL_ON:
        raise PolicyError(f"failOn: {name!r} is none of {', '.join(FAIL_ON)}")
    return _NEVER if name == "never" else int(Severity[name.upper()])


def from_mapping(tree: Any, rules: Iterable[str], base: Policy | None = None) -> Policy:
    """A policy from a file's values. Raises PolicyError."""
    if not isinstance(tree, dict):
        raise PolicyError("is not a mapping of settings, such as cpuLimit: never")
    policy, known = base or Policy(), frozenset(rules)
    for key, value in tree.items():
        policy = replace(policy, **_setting(key, value, known))
    return policy


def _setting(key: str, value: Any, rules: frozenset[str]) -> dict[str, Any]:
    """The policy's field that a file's setting stands for."""
    match key:
        case "cpuRequest" | "cpuLimit" | "batchCpuLimit" | "memoryLimit":
            if value not in CHOICES[key]:
                raise PolicyError(f"{key}: {value!r} is none of {', '.join(CHOICES[key])}")
            return {"".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in key): value}
        case "exclusiveCPUs":
            if not isinstance(value, bool):
                raise PolicyError(f"{key}: {value!r} is neither true nor false")
            return {"exclusive_cpus": value}
        case "nodeCPUs":
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise PolicyError(f"{key}: {value!r} is not a number of CPUs, such as 96 (0: unknown)")
            return {"node_cpus": value}
        case "cfsPeriod":
            milliseconds = str(value).removesuffix("ms")
            if isinstance(value, bool) or not milliseconds.isdecimal() or not 1 <= int(milliseconds) <= 1000:
                raise PolicyError(f"{key}: {value!r} is not a period from 1ms to 1000ms, such as 100ms")
            return {"cfs_period_us": int(milliseconds) * 1000}
        case "failOn":
            return {"fail_on": severity(str(value))}
        case "severity":
            if not isinstance(value, dict):
                raise PolicyError(
                    f"{key}: {value!r} is not a mapping of rules to severities (cpu-limit: error)"
                )
            return {"severities": {_rule(key, rule, rules): _level(key, rule, value[rule]) for rule in value}}
        case "ignore":
            names = "exemptions, each with a rule and a reason"
            return {"exemptions": _each(key, value, names, lambda item: _exemption(item, rules))}
        case "customResources":
            names = "kinds, each with pod or containers"
            return {"custom_resources": _each(key, value, names, custom_resources.from_setting)}
        case "sidecarInjectors":
            names = "injectors, each with pod or namespace"
            return {"sidecar_injectors": _each(key, value, names, injectors.from_setting)}
    raise PolicyError(f"{key}: no such setting; there are {', '.join([*CHOICES, *_FURTHER])}")


_FURTHER: Final = (
    *("exclusiveCPUs", "nodeCPUs", "cfsPeriod", "failOn", "severity", "ignore"),
    *("customResources", "sidecarInjectors"),
)


def _level(key: str, rule: str, level: Any) -> Severity | None:
    # YAML 1.1 reads a bare off as false.
    if level in ("off", False):
        return None
    if level not in ("info", "warning", "error"):
        raise PolicyError(f"{key}.{rule}: {level!r} is none of info, warning, error, off")
    return Severity[str(level).upper()]


def _rule(key: str, rule: Any, known: frozenset[str]) -> str:
    if not isinstance(rule, str) or rule not in known:
        raise PolicyError(f"{key}: there is no rule {rule!r}; corelane limits lint --rules lists them")
    return rule


def _each(key: str, value: Any, names: str, read: Callable[[Any], T]) -> tuple[T, ...]:
    if not isinstance(value, list):
        raise PolicyError(f"{key}: {value!r} is not a list of {names}")
    items = []
    for index, item in enumerate(value):
        try:
            items.append(read(item))
        except ValueError as error:
            raise PolicyError(f"{key}[{index}]: {error}") from None
    return tuple(items)


def _exemption(value: Any, rules: frozenset[str]) -> Exemption:
    names = [one.name for one in fields(Exemption)]
    if not isinstance(value, dict) or not set(value) <= set(names):
        raise ValueError(f"{value!r} is not a mapping of {', '.join(names)}")
    texts = {name: str(text) for name, text in value.items() if name != "rule"}
    if not texts.get("reason", "").strip():
        raise ValueError("has no reason: state why these findings are acceptable")
    return Exemption(_rule("rule", value.get("rule"), rules), **texts)
