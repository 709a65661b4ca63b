"""What the API server finds wrong with a pod that differs from a sound one in what a test says."""

import json
import re

from corelane.embedded.apiserver import validation
from corelane.embedded.apiserver.codec import request_bodies
from corelane.embedded.apiserver.served_kinds import PODS
from corelane.embedded.apiserver.write import strategy

SOUND = {
    "metadata": {"name": "p", "namespace": "d"},
    "spec": {"containers": [{"name": "c", "image": "i"}]},
}
_FAULT = re.compile(r"(.*?): (Invalid|Required|Forbidden|Duplicate|Not found|Unsupported|Too long|Too many)")
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def merged(one, *others):
    """Objects merged member by member; lists are replaced."""
    for other in others:
        both = isinstance(one, dict) and isinstance(other, dict)
        one = {**one, **{key: merged(one.get(key), value) for key, value in other.items()}} if both else other
    return one


def prepared(*changes):
    body = json.dumps(merged(SOUND, *changes)).encode()
    pod, _ = request_bodies.decode(PODS, "v1", body, field_validation="Strict")
    strategy.prepare_create(PODS, pod)
    return pod


def faults(*changes):
    return [f"{cause.field}: {cause.message}" for cause in validation.create(PODS, prepared(*changes))]


def agree(found, expected, within=""):
    """Whether faults are as expected, under `within` but for those that begin with a slash, in any order.

    Field and kind of fault count, not the wording of the rule.
    """
    wanted = [text.removeprefix("/") if text.startswith("/") else within + text for text in expected]
    return {kind_of(text) for text in found} == {
        kind_of(text.replace("REQUIRED", REQUIRED)) for text in wanted
    }


def kind_of(text):
    """The field of a fault and what kind it is of, without value and rule."""
    field, kind = _FAULT.match(text).groups()
    return f"{field}: {kind}"


def spec(**fields):
    return {"spec": fields}


def container(**fields):
    return spec(containers=[{"name": "c", "image": "i", **fields}])


def volume(**fields):
    return spec(volumes=[{"name": "v", **fields}])


def apart(**fields):
    """A pod with a term of anti-affinity."""
    term = {"topologyKey": "zone", "labelSelector": {}, **fields}
    return spec(affinity={"podAntiAffinity": {REQUIRED: [term]}})


def on_nodes(**term):
    return spec(affinity={"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [term]}}})


def spread(**fields):
    sound = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
    return spec(topologySpreadConstraints=[sound | fields])
