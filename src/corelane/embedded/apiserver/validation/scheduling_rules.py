"""Rules on where a pod may go: selectors, affinity, tolerations, spreading."""

from collections.abc import Iterable, Iterator

from corelane import names
from corelane.embedded.apiserver.status_errors import StatusCause
from corelane.embedded.apiserver.validation import causes
from corelane.embedded.apiserver.validation.causes import child, item
from corelane.embedded.apiserver.validation.table_rules import Object, Scope, rule


@rule("selector-operator")
def _selector_operator(requirement: Object, path: str, _scope: Scope) -> list[StatusCause]:
    operator, values = requirement.get("operator", ""), requirement.get("values", ())
    if operator in {"In", "NotIn"}:
        return [] if values else [causes.required(child(path, "values"), "In and NotIn require values")]
    if operator in {"Exists", "DoesNotExist"}:
        return (
            [causes.forbidden(child(path, "values"), "Exists and DoesNotExist have no values")]
            if values
            else []
        )
    return [causes.invalid(child(path, "operator"), operator, "must be In, NotIn, Exists or DoesNotExist")]


@rule("node-expressions")
def _node_expressions(term: Object, path: str, scope: Scope) -> Iterator[StatusCause]:
    for index, requirement in enumerate(term.get("matchExpressions", ())):
        where = item(child(path, "matchExpressions"), index)
        operator, values = requirement.get("operator", ""), requirement.get("values", ())
        if operator in {"Gt", "Lt"}:
            if len(values) != 1:
                yield causes.required(child(where, "values"), "Gt and Lt require one value")
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
        operator, name = requirement.get("operator", ""), requirement.get("key", "")
        if operator not in {"In", "NotIn"}:
            yield causes.invalid(child(where, "operator"), operator, "must be In or NotIn")
        elif len(values) != 1:
            yield causes.required(child(where, "values"), "must be one value")
        if name != "metadata.name":
            yield causes.invalid(child(where, "key"), name, "must be metadata.name")
            continue
        for number, value in enumerate(values):
            spot = item(child(where, "values"), number)
            yield from causes.all_invalid(spot, value, names.dns_subdomain(value))


@rule("term-namespaces")
def _term_namespaces(term: Object, path: str, _scope: Scope) -> Iterator[StatusCause]:
    for name in term.get("namespaces", ()):
        yield from causes.all_invalid(child(path, "namespace"), name, names.dns_label(name))


@rule("label-keys")
def _label_keys(term: Object, path: str, _scope: Scope) -> Iterator[StatusCause]:
    """KEP-3633: keys whose values come from the pod's own labels."""
    selector, match = term.get("labelSelector"), term.get("matchLabelKeys", ())
    mismatch = term.get("mismatchLabelKeys", ())
    for name, listed in (("matchLabelKeys", match), ("mismatchLabelKeys", mismatch)):
        if listed and selector is None:
            yield causes.forbidden(child(path, name), "requires labelSelector")
        elif listed:
            for index, label in enumerate(listed):
                spot = item(child(path, name), index)
                yield from causes.all_invalid(spot, label, names.qualified_name(label))
    yield from _repeated_label_keys(selector or {}, match, path)
    foreign = frozenset(mismatch)
    for index, label in enumerate(match):
        if label in foreign:
            spot = item(child(path, "matchLabelKeys"), index)
            yield causes.invalid(spot, label, "must not be in mismatchLabelKeys, too")


def _repeated_label_keys(selector: Object, match: Iterable[str], path: str) -> Iterator[StatusCause]:
    """The server merges the keys into the selector: a key that is there twice was there before."""
    first = {label: index for index, label in reversed(list(enumerate(match)))}
    seen = set(selector.get("matchLabels", ()))
    for expression in selector.get("matchExpressions", ()):
        label = expression.get("key", "")
        if label in first and label in seen:
            spot = item(path, first[label])
            yield causes.invalid(spot, label, "must not be in labelSelector, too")
        seen.add(label)


@rule("spread")
def _repeated_constraints(spec: Object, path: str, _scope: Scope) -> Iterator[StatusCause]:
    """All but the last of constraints on the same topology with the same action are at fault."""
    listed = spec.get("topologySpreadConstraints", ())
    pairs = [(one.get("topologyKey", ""), one.get("whenUnsatisfiable", "")) for one in listed]
    last = {pair: index for index, pair in enumerate(pairs)}
    for index, pair in enumerate(pairs):
        if index < last[pair]:
            where = item(child(path, "topologySpreadConstraints"), index)
            yield causes.duplicate(child(where, "{topologyKey, whenUnsatisfiable}"), ", ".join(pair))


@rule("min-domains")
def _min_domains(constraint: Object, path: str, _scope: Scope) -> Iterator[StatusCause]:
    domains = constraint.get("minDomains")
    if domains is not None and constraint.get("whenUnsatisfiable") != "DoNotSchedule":
        yield causes.invalid(child(path, "minDomains"), domains, "requires whenUnsatisfiable DoNotSchedule")


@rule("toleration")
def _toleration(toleration: Object, path: str, _scope: Scope) -> Iterator[StatusCause]:
    operator, value = toleration.get("operator", ""), toleration.get("value", "")
    where = child(path, "operator")
    if operator not in {"", "Equal", "Exists"}:
        yield causes.not_supported(where, operator, ("Equal", "Exists"))
    if not toleration.get("key") and operator != "Exists":
        yield causes.invalid(where, operator, "must be Exists without a key: all keys and values match")
    if operator == "Exists" and value:
        yield causes.invalid(where, value, "Exists has no value")
    elif operator in {"", "Equal"}:
        yield from causes.all_invalid(where, value, names.label_value(value))
    if "tolerationSeconds" in toleration and toleration.get("effect") != "NoExecute":
        yield causes.invalid(
            child(path, "effect"), toleration.get("effect", ""), "tolerationSeconds require NoExecute"
        )
