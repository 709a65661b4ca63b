"""Rules on where a pod may go: selectors, affinity, tolerations, spreading, gates."""

from collections import Counter
from collections.abc import Iterable, Iterator

from corelane import names
from corelane.embedded.apiserver.status_errors import StatusCause
from corelane.embedded.apiserver.validation import causes
from corelane.embedded.apiserver.validation.causes import child, item
from corelane.embedded.apiserver.validation.table_rules import Object, Scope, rule

_IN = "must be specified when `operator` is 'In' or 'NotIn'"
_EXISTS = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
_BAD_OPERATOR = "not a valid selector operator"
_NO_SELECTOR = "must not be specified when labelSelector is not set"


@rule("selector-operator")
def _selector_operator(requirement: Object, path: str, _scope: Scope) -> list[StatusCause]:
    operator, values = requirement.get("operator", ""), requirement.get("values", ())
    if operator in {"In", "NotIn"}:
        return [] if values else [causes.required(child(path, "values"), _IN)]
    if operator in {"Exists", "DoesNotExist"}:
        return [causes.forbidden(child(path, "values"), _EXISTS)] if values else []
    return [causes.invalid(child(path, "operator"), operator, _BAD_OPERATOR)]


@rule("node-selector-terms")
def _node_selector_terms(selector: Object, path: str, _scope: Scope) -> list[StatusCause]:
    if selector.get("nodeSelectorTerms"):
        return []
    where = child(path, "nodeSelectorTerms")
    return [causes.required(where, "must have at least one node selector term")]


@rule("node-expressions")
def _node_expressions(term: Object, path: str, scope: Scope) -> Iterator[StatusCause]:
    for index, requirement in enumerate(term.get("matchExpressions", ())):
        where = item(child(path, "matchExpressions"), index)
        operator, values = requirement.get("operator", ""), requirement.get("values", ())
        if operator in {"Gt", "Lt"}:
            if len(values) != 1:
                why = "must be specified single value when `operator` is 'Lt' or 'Gt'"
                yield causes.required(child(where, "values"), why)
        else:
            yield from _selector_operator(requirement, where, scope)
        name = requirement.get("key", "")
        yield from causes.all_invalid(child(where, "key"), name, names.qualified_name(name))
        if not path.endswith(".preference"):
            for number, value in enumerate(values):
                spot = item(child(where, "values"), number)
                yield from causes.all_invalid(spot, value, names.label_value(value))


@rule("node-fields")
def _node_fields(term: Object, path: str, _scope: Scope) -> Iterator[StatusCause]:
    for index, requirement in enumerate(term.get("matchFields", ())):
        where, values = item(child(path, "matchFields"), index), requirement.get("values", ())
        if requirement.get("operator") not in {"In", "NotIn"}:
            yield causes.invalid(child(where, "operator"), requirement.get("operator", ""), _BAD_OPERATOR)
        elif len(values) != 1:
            why = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
            yield causes.required(child(where, "values"), why)
        if requirement.get("key") != "metadata.name":
            yield causes.invalid(
                child(where, "key"), requirement.get("key", ""), "not a valid field selector key"
            )
            continue
        for number, value in enumerate(values):
            spot = item(child(where, "values"), number)
            yield from causes.all_invalid(spot, value, names.dns_subdomain(value))


@rule("term-namespaces")
def _term_namespaces(term: Object, path: str, _scope: Scope) -> Iterator[StatusCause]:
    for name in term.get("namespaces", ()):
        yield from causes.all_invalid(child(path, "namespace"), name, names.dns_label(name))


@rule("term-topology-key")
def _term_topology_key(term: Object, path: str, _scope: Scope) -> Iterator[StatusCause]:
    name, where = term.get("topologyKey", ""), child(path, "topologyKey")
    if not name:
        yield causes.required(where, "can not be empty")
    yield from causes.all_invalid(where, name, names.qualified_name(name))


@rule("spread-topology-key")
def _spread_topology_key(constraint: Object, path: str, _scope: Scope) -> list[StatusCause]:
    if constraint.get("topologyKey"):
        return []
    return [causes.required(child(path, "topologyKey"), "can not be empty")]


@rule("term-label-keys")
@rule("spread-label-keys")
def _label_keys(term: Object, path: str, _scope: Scope) -> Iterator[StatusCause]:
    """KEP-3633: keys whose values come from the pod's own labels."""
    selector, match = term.get("labelSelector"), term.get("matchLabelKeys", ())
    mismatch = term.get("mismatchLabelKeys", ())
    for name, listed in (("matchLabelKeys", match), ("mismatchLabelKeys", mismatch)):
        if listed and selector is None:
            yield causes.forbidden(child(path, name), _NO_SELECTOR)
        elif listed:
            for index, label in enumerate(listed):
                spot = item(child(path, name), index)
                yield from causes.all_invalid(spot, label, names.qualified_name(label))
    yield from _repeated_label_keys(selector or {}, match, path)
    foreign = frozenset(mismatch)
    for index, label in enumerate(match):
        if label in foreign:
            spot = item(child(path, "matchLabelKeys"), index)
            yield causes.invalid(spot, label, "exists in both matchLabelKeys and mismatchLabelKeys")


def _repeated_label_keys(selector: Object, match: Iterable[str], path: str) -> Iterator[StatusCause]:
    """The server merges the keys into the selector: a key that is there twice was there before."""
    first = {label: index for index, label in reversed(list(enumerate(match)))}
    seen = set(selector.get("matchLabels", ()))
    for expression in selector.get("matchExpressions", ()):
        label = expression.get("key", "")
        if label in first and label in seen:
            spot = item(path, first[label])
            yield causes.invalid(spot, label, "exists in both matchLabelKeys and labelSelector")
        seen.add(label)


@rule("spread-repeated")
def _spread_repeated(constraint: Object, path: str, scope: Scope) -> Iterator[StatusCause]:
    """All but the last of those that are the same are at fault."""
    if not scope.spread:
        scope.spread.update(Counter(map(_spread, scope.spec["topologySpreadConstraints"])))
    same = _spread(constraint)
    scope.spread[same] -= 1
    if scope.spread[same]:
        yield causes.duplicate(child(path, "{topologyKey, whenUnsatisfiable}"), f"{{{same[0]}, {same[1]}}}")


def _spread(constraint: Object) -> tuple[str, str]:
    return constraint.get("topologyKey", ""), constraint.get("whenUnsatisfiable", "")


@rule("min-domains")
def _min_domains(constraint: Object, path: str, _scope: Scope) -> Iterator[StatusCause]:
    domains, action = constraint.get("minDomains"), constraint.get("whenUnsatisfiable", "")
    where = child(path, "minDomains")
    if domains is None:
        return
    if domains <= 0:
        yield causes.invalid(where, domains, "must be greater than zero")
    if action != "DoNotSchedule":
        why = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"
        yield causes.invalid(where, domains, why)


@rule("toleration")
def _toleration(toleration: Object, path: str, _scope: Scope) -> Iterator[StatusCause]:
    name, operator = toleration.get("key", ""), toleration.get("operator", "")
    if name:
        yield from causes.all_invalid(child(path, "key"), name, names.qualified_name(name))
    elif operator != "Exists":
        why = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        yield causes.invalid(child(path, "operator"), operator, why)
    effect = toleration.get("effect", "")
    if "tolerationSeconds" in toleration and effect != "NoExecute":
        why = "effect must be 'NoExecute' when `tolerationSeconds` is set"
        yield causes.invalid(child(path, "effect"), effect, why)
    yield from _toleration_value(operator, toleration.get("value", ""), child(path, "operator"))
    effects = ("NoSchedule", "PreferNoSchedule", "NoExecute")
    if effect and effect not in effects:
        yield causes.not_supported(child(path, "effect"), effect, effects)


def _toleration_value(operator: str, value: str, path: str) -> Iterator[StatusCause]:
    if operator in {"Equal", ""}:
        faults = names.label_value(value)
        if faults:
            yield causes.invalid(path, value, ";".join(faults))
    elif operator == "Exists":
        if value:
            yield causes.invalid(path, value, "value must be empty when `operator` is 'Exists'")
    elif operator in {"Lt", "Gt"}:
        yield causes.not_supported(path, operator, ("Equal", "Exists", "Lt", "Gt"))
    else:
        yield causes.not_supported(path, operator, ("Equal", "Exists"))


@rule("scheduling-gates")
def _scheduling_gates(spec: Object, path: str, _scope: Scope) -> Iterator[StatusCause]:
    seen: set[str] = set()
    for index, gate in enumerate(spec.get("schedulingGates", ())):
        where, name = item(child(path, "schedulingGates"), index), gate.get("name", "")
        yield from causes.all_invalid(where, name, names.qualified_name(name))
        if name in seen:
            yield causes.duplicate(where, name)
        seen.add(name)
