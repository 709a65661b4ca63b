"""What the API server finds wrong with a pod that differs from a sound one in what a test says."""

import json

from corelane.embedded.apiserver import validation
from corelane.embedded.apiserver.codec import envelope
from corelane.embedded.apiserver.served_kinds import PODS
from corelane.embedded.apiserver.write import strategy

SOUND = {
    "metadata": {"name": "p", "namespace": "d"},
    "spec": {"containers": [{"name": "c", "image": "i"}]},
}
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
    pod, _ = envelope.decode(PODS, "v1", body, field_validation="Strict")
    strategy.prepare_create(PODS, pod)
    return pod


def faults(*changes):
    return [f"{cause.field}: {cause.message}" for cause in validation.create(PODS, prepared(*changes))]


def agree(found, expected, within=""):
    """Whether faults are as expected, under `within` but for those that begin with a slash; … is anything."""
    wanted = [text.removeprefix("/") if text.startswith("/") else within + text for text in expected]
    return len(found) == len(wanted) and all(map(_agrees, found, wanted))


def _agrees(text, wanted):
    first, *rest = wanted.replace("REQUIRED", REQUIRED).split("…")
    return text.startswith(first) and text.endswith(rest[-1]) if rest else text == first


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
