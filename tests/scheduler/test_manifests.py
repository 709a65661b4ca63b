"""The shipped manifests: least privilege, and a pod that needs no privileges of its node."""

from pathlib import Path
from typing import Any

import yaml
from click.testing import CliRunner

from corelane.cli.scheduler import scheduler as command
from corelane.kube.client import KubeClient
from corelane.scheduler.daemon import object_watches
from corelane.scheduler.daemon.daemon import DRAIN_SECONDS
from corelane.scheduler.daemon.scheduler import Scheduler

DEPLOY = Path(__file__).parents[2] / "deploy/scheduler"


def documents(name: str) -> dict[str, Any]:
    return {one["kind"]: one for one in yaml.safe_load_all((DEPLOY / name).read_text())}


def granted(role: str) -> dict[str, set[str]]:
    rules = documents("rbac.yaml")[role]["rules"]
    permissions: dict[str, set[str]] = {}
    for rule in rules:
        for resource in rule["resources"]:
            permissions.setdefault(resource, set()).update(rule["verbs"])
    return permissions


def test_every_kind_that_is_watched_may_be_listed_and_watched() -> None:
    scheduler = Scheduler(KubeClient.connect_to("http://127.0.0.1:1"))
    kinds = [informer.kind for informer in scheduler._informers] + [*object_watches.KINDS]
    watched = {kind.api.plural for kind in kinds}
    permitted = granted("ClusterRole") | granted("Role")
    assert {resource for resource, verbs in permitted.items() if {"list", "watch"} <= verbs} == watched


def test_no_rule_is_wider_than_its_names() -> None:
    text = (DEPLOY / "rbac.yaml").read_text()
    assert "*" not in text
    for verb in ("update", "deletecollection", "escalate", "impersonate", "bind]"):
        assert verb not in text


def test_one_account_has_both_roles() -> None:
    rbac = documents("rbac.yaml")
    account = rbac["ServiceAccount"]["metadata"]
    for binding, role in (("ClusterRoleBinding", "ClusterRole"), ("RoleBinding", "Role")):
        assert rbac[binding]["roleRef"]["name"] == rbac[role]["metadata"]["name"]
        (subject,) = rbac[binding]["subjects"]
        assert (subject["namespace"], subject["name"]) == (account["namespace"], account["name"])


def test_the_pod_runs_without_privileges() -> None:
    pod = documents("deployment.yaml")["Deployment"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert not any("hostPath" in volume for volume in pod["volumes"])
    assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
    assert pod["terminationGracePeriodSeconds"] > 2 * DRAIN_SECONDS
    assert pod["serviceAccountName"] == documents("rbac.yaml")["ServiceAccount"]["metadata"]["name"]


def test_the_pods_command_has_valid_options_and_the_file_that_is_mounted() -> None:
    pod = documents("deployment.yaml")["Deployment"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["command"] == ["corelane"]
    name, *options = container["args"]
    assert name == command.name
    shown = CliRunner().invoke(command, ["--help"]).output
    assert all(option.partition("=")[0] in shown for option in options)
    (mount,) = container["volumeMounts"]
    (volume,) = pod["volumes"]
    config = documents("config.yaml")["ConfigMap"]
    assert volume["configMap"]["name"] == config["metadata"]["name"]
    assert [f"{mount['mountPath']}/{file}" for file in config["data"]] == [options[0].partition("=")[2]]


def test_the_image_is_pinned_and_runs_as_the_pods_user_what_the_pod_starts() -> None:
    """No builder is here: what can be checked of the Dockerfile without one."""
    root, lines = DEPLOY.parents[1], (DEPLOY / "Dockerfile").read_text().splitlines()
    stages = [line for line in lines if line.startswith("FROM")]
    assert len(stages) == 2
    last = lines[lines.index(stages[1]) :]
    pod = documents("deployment.yaml")["Deployment"]["spec"]["template"]["spec"]
    user, group = pod["securityContext"]["runAsUser"], pod["securityContext"]["runAsGroup"]
    assert f"USER {user}:{group}" in last
    (container,) = pod["containers"]
    assert f"ENTRYPOINT {container['command']}".replace("'", '"') in last
    assert container["args"][0] == "scheduler"
    assert container["image"].partition(":")[0] == "corelane-scheduler"
    assert f"EXPOSE {container['ports'][0]['containerPort']}" in last
    copied = [line.split()[1:-1] for line in lines if line.startswith("COPY") and "--from" not in line]
    assert all((root / name).exists() for names in copied for name in names)
    (install,) = [line for line in lines if "pip install" in line]
    assert "-c requirements.lock" in install
    assert "'.[scheduler]'" in install
