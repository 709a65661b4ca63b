"""What is unusual but sound is accepted."""

import pytest

from support.pod_faults import container, faults, on_nodes, spec, spread, volume

SIDECAR = {
    "name": "i",
    "image": "i",
    "restartPolicy": "Always",
    "livenessProbe": {"exec": {"command": ["a"]}},
}
SOUND = [
    {},
    {"metadata": {"name": "a.b"}},
    {"metadata": {"labels": {"a.b/C_d": "", "x": "A-1"}, "annotations": {"A.b/C": "any thing"}}},
    {"metadata": {"finalizers": ["kubernetes", "a.b/c"]}},
    spec(initContainers=[SIDECAR]),
    spec(terminationGracePeriodSeconds=-5),
    spec(readinessGates=[{"conditionType": "a"}, {"conditionType": "a"}]),
    spec(imagePullSecrets=[{}]),
    spec(hostUsers=False),
    spec(dnsPolicy="None", dnsConfig={"nameservers": ["1.1.1.1"], "searches": [".", "a_b.c."]}),
    spec(tolerations=[{"operator": "Exists"}, {"key": "a", "value": "b", "effect": "NoSchedule"}]),
    spec(os={"name": "windows"}),
    spec(overhead={"cpu": "250m"}, runtimeClassName="kata"),
    spec(hostnameOverride="a.b.c"),
    on_nodes(matchExpressions=[{"key": "a", "operator": "Gt", "values": ["1"]}]),
    spread(minDomains=2, nodeAffinityPolicy="Honor"),
    container(ports=[{"containerPort": 1, "hostIP": "x"}, {"containerPort": 1, "protocol": "UDP"}]),
    container(
        ports=[{"containerPort": 1, "hostPort": 5}, {"containerPort": 2, "hostPort": 5, "hostIP": "::1"}]
    ),
    container(env=[{"name": "any.thing but -"}]),
    container(resources={"limits": {"example.com/gpu": "1", "hugepages-2Mi": "4Mi", "cpu": "1"}}),
    container(securityContext={"windowsOptions": {"runAsUserName": "bad domain!\\user"}}),
    container(image="not an image at all"),
    volume(),
    volume(projected={"sources": [{}]}),
    volume(hostPath={"path": "/a..b/c", "type": "Directory"}),
    volume(iscsi={"targetPortal": "p", "iqn": "naa." + "0" * 32, "lun": 0}),
]


@pytest.mark.parametrize("change", SOUND)
def test_an_unusual_pod_is_accepted(change):
    assert faults(change) == []
