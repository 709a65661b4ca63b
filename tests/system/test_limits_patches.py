"""The patches of `limits advise` as a real kubectl merges them, into every kind that makes pods."""

import json
import shlex
import subprocess

import pytest
import yaml

from corelane.limits.advice import changes
from corelane.limits.advice.changes import Patch
from corelane.limits.advice.subjects import Subject
from corelane.limits.lint.thread_settings import ThreadSetting
from support import kubectl

pytestmark = pytest.mark.system

APIS = {
    "Deployment": "apps/v1",
    "StatefulSet": "apps/v1",
    "DaemonSet": "apps/v1",
    "ReplicaSet": "apps/v1",
    "ReplicationController": "v1",
    "CronJob": "batch/v1",
}
AMOUNTS = {"cpu": "200m", "memory": "1Gi"}
FROM_LIMIT = {"name": "GOMAXPROCS", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}}
SETTINGS = (ThreadSetting("GOMAXPROCS", 4, env=True),)


def manifest(kind: str, *, init: bool) -> dict:
    app = {"name": "app", "image": "a", "env": [{"name": "A", "value": "b"}, FROM_LIMIT]}
    app["resources"] = {"requests": AMOUNTS, "limits": AMOUNTS}
    beside = {"name": "beside", "image": "b"}
    pod = {"containers": [beside], "initContainers": [app]} if init else {"containers": [beside, app]}
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {**pod, "restartPolicy": "Always"}}
    spec = {"template": template, "selector": {"matchLabels": {"a": "b"}}}
    if kind == "CronJob":
        template["spec"]["restartPolicy"] = "Never"
        spec = {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": template}}}
    elif kind == "ReplicationController":
        del spec["selector"]
    return {
        "apiVersion": APIS[kind],
        "kind": kind,
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": spec,
    }


def merged(made: Patch | None, tree: dict, tmp_path) -> dict:
    """The pod template after the command, which is run on a file instead of a server."""
    found = kubectl.find()
    if found is None:
        pytest.skip(kubectl.MISSING)
    assert made is not None
    file = tmp_path / "m.yaml"
    file.write_text(yaml.safe_dump(tree))
    words = [word for word in shlex.split(made.command)[1:] if not word.endswith("/web")]
    command = [str(found[0]), *words, "--local", "-f", str(file), "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    spec = json.loads(done.stdout)["spec"]
    return spec["jobTemplate"]["spec"]["template"] if "jobTemplate" in spec else spec["template"]


@pytest.mark.parametrize("init", [False, True])
@pytest.mark.parametrize("kind", APIS)
def test_a_patch_changes_what_it_is_for_and_nothing_else(kind, init, tmp_path):
    subject = Subject(kind, "shop", "web", "app", init=init, settings=SETTINGS)
    tree, key = manifest(kind, init=init), "initContainers" if init else "containers"

    dropped = merged(
        changes.container_patch(subject, {"resources": {"limits": {"cpu": None}}}), tree, tmp_path
    )
    app = dropped["spec"][key][-1]
    assert app["resources"] == {"requests": AMOUNTS, "limits": {"memory": "1Gi"}}
    assert FROM_LIMIT in app["env"]
    assert sum(len(dropped["spec"].get(name, [])) for name in ("containers", "initContainers")) == 2

    fewer = merged(changes.threads_patch(subject, 2)[1], tree, tmp_path)["spec"][key][-1]
    assert {"name": "GOMAXPROCS", "value": "2"} in fewer["env"], "instead of what the limit said"
    assert {"name": "A", "value": "b"} in fewer["env"]

    burst = merged(changes.annotation_patch(subject, "koordinator.sh/cpuBurst", '{"a":1}'), tree, tmp_path)
    assert burst["metadata"]["annotations"] == {"koordinator.sh/cpuBurst": '{"a":1}'}
    assert burst["metadata"]["labels"] == {"a": "b"}
