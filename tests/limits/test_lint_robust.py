"""Whatever stands where in a manifest: lint says something of it, and never fails."""

import json
from contextlib import suppress

from hypothesis import given, settings
from hypothesis import strategies as st

from corelane.limits.lint.linter import LintReport
from support.manifests import report

_RESOURCES = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "2Gi"}}
_CONTAINER = {
    "name": "app",
    "image": "nginx:1",
    "command": ["gunicorn", "--workers", "4"],
    "args": ["--threads=2"],
    "env": [
        {"name": "GOMAXPROCS", "value": "8"},
        {
            "name": "OMP_NUM_THREADS",
            "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1"}},
        },
        {"name": "JAVA_OPTS", "value": "-XX:ActiveProcessorCount=3"},
    ],
    "resources": _RESOURCES,
}
_POD = {
    "metadata": {
        "labels": {"koordinator.sh/qosClass": "LS"},
        "annotations": {"koordinator.sh/cpuBurst": '{"policy": "auto"}', "cpu-quota.crio.io": "disable"},
    },
    "spec": {
        "initContainers": [{**_CONTAINER, "restartPolicy": "Always"}],
        "containers": [_CONTAINER],
        "resources": _RESOURCES,
    },
}
_METRIC = {"type": "Resource", "resource": {"name": "cpu", "target": {"averageUtilization": 80}}}
_OBJECTS = [
    {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "w"}, "spec": {"template": _POD}},
    {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": "l"},
        "spec": {"limits": [{"type": "Container", "default": {"cpu": "1"}, "max": {"cpu": "2"}}]},
    },
    {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "q"},
        "spec": {"hard": {"limits.cpu": "1", "requests.cpu": "1"}},
    },
    {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "h"},
        "spec": {
            "scaleTargetRef": {"kind": "Deployment", "name": "w"},
            "targetCPUUtilizationPercentage": 80,
            "metrics": [_METRIC],
        },
    },
    {"apiVersion": "v1", "kind": "ConfigMap", "data": {"cpu-burst-config": '{"nodeStrategies": [{}]}'}},
    {"apiVersion": "v1", "kind": "KubeletConfiguration", "cpuCFSQuotaPeriod": "5ms", "cpuCFSQuota": False},
]
_JUNK = st.sampled_from(
    [
        None,
        True,
        0,
        -1,
        1e400,
        10**40,
        "",
        "0",
        "-5",
        "1e9999999",
        "{{ x }}",
        "½",
        "٣",
        [],
        {},
        [[]],
        [None],
        {"a": {}},
    ]
)


def _paths(tree, path=()):
    yield path
    children = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, child in children:
        yield from _paths(child, (*path, key))


_PATHS = [path for path in _paths(_OBJECTS) if len(path) > 1]


@settings(max_examples=60)
@given(changes=st.lists(st.tuples(st.sampled_from(_PATHS), _JUNK), min_size=1, max_size=3))
def test_no_value_anywhere_makes_lint_fail(changes):
    tree = json.loads(json.dumps(_OBJECTS))
    for path, junk in changes:
        _put(tree, path, junk)
    found = report("\n---\n".join(json.dumps(one) for one in tree))
    assert isinstance(found, LintReport)
    for one in found.findings:
        assert one.place.line >= 1
        assert one.message
        assert one.fix
        assert "\n" not in one.message


def _put(tree, path, junk) -> None:
    """Put it there, unless an earlier change took the place away."""
    with suppress(KeyError, IndexError, TypeError):
        for key in path[:-1]:
            tree = tree[key]
        tree[path[-1]] = junk
