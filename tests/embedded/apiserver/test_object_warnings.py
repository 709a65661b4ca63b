"""What is allowed but hardly meant is warned of, in upstream's words; and how internal objects are shown."""

import pytest

from corelane.embedded.apiserver.served_kinds import CONFIG_MAPS, NODES, PODS
from corelane.embedded.apiserver.validation import object_warnings
from corelane.embedded.apiserver.validation.object_warnings import MAX_WARNINGS
from support.pod_faults import (
    PREFERRED,
    REQUIRED,
    container,
    on_nodes,
    prepared,
    spec,
    spread,
    volume,
)

NULL_SELECTOR = "a null labelSelector results in matching no pod"
ARCH = 'beta.kubernetes.io/arch is deprecated since v1.14; use "kubernetes.io/arch" instead'
SECCOMP = 'non-functional in v1.27+; use the "seccompProfile" field instead'
PORT = {"containerPort": 80}
NAMED = [
    {"name": name, "image": "i", "ports": [{"name": "p", "containerPort": number}]}
    for name, number in (("a", 1), ("b", 2))
]
TERM = {"topologyKey": "z"}
SPREAD = "spec.topologySpreadConstraints[0]"
PORTS = "spec.containers[0].ports"
CASES = [
    (
        {"metadata": {"name": "a.b"}},
        [
            (
                "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; "
                "a DNS label is recommended: [must not contain dots]"
            )
        ],
    ),
    (
        spec(nodeSelector={"beta.kubernetes.io/os": "linux"}),
        ['spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use "kubernetes.io/os" instead'],
    ),
    (
        on_nodes(matchExpressions=[{"key": "beta.kubernetes.io/arch", "operator": "Exists"}]),
        [f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms[0].matchExpressions[0].key: {ARCH}"],
    ),
    (spread(topologyKey="beta.kubernetes.io/arch"), [f"{SPREAD}.topologyKey: {ARCH}"]),
    (spread(labelSelector=None), [f"{SPREAD}.labelSelector: {NULL_SELECTOR}"]),
    (
        spec(affinity={"podAffinity": {REQUIRED: [TERM]}}),
        [f"spec.affinity.podAffinity.{REQUIRED}[0].labelSelector: {NULL_SELECTOR}"],
    ),
    (
        spec(affinity={"podAntiAffinity": {PREFERRED: [{"weight": 1, "podAffinityTerm": TERM}]}}),
        [f"spec.affinity.podAntiAffinity.{PREFERRED}[0].podAffinityTerm.labelSelector: {NULL_SELECTOR}"],
    ),
    (
        {"metadata": {"annotations": {"security.alpha.kubernetes.io/sysctls": "a"}}},
        [
            (
                "metadata.annotations[security.alpha.kubernetes.io/sysctls]: non-functional in v1.11+; "
                'use the "sysctls" field instead'
            )
        ],
    ),
    (
        {"metadata": {"annotations": {"seccomp.security.alpha.kubernetes.io/pod": "a"}}},
        [f"metadata.annotations[seccomp.security.alpha.kubernetes.io/pod]: {SECCOMP}"],
    ),
    (
        {"metadata": {"annotations": {"container.seccomp.security.alpha.kubernetes.io/c": "a"}}},
        [f"metadata.annotations[container.seccomp.security.alpha.kubernetes.io/c]: {SECCOMP}"],
    ),
    (
        volume(gitRepo={"repository": "r"}),
        ["spec.volumes[0].gitRepo: deprecated in v1.11, and disabled by default in v1.33+"],
    ),
    (
        volume(storageos={"volumeName": "v"}),
        ["spec.volumes[0].storageOS: deprecated in v1.22, non-functional in v1.25+"],
    ),
    (
        volume(configMap={"name": "m", "items": [{"key": "a", "path": "x"}, {"key": "b", "path": "x/y"}]}),
        ['volume "v" (ConfigMap "m"): overlapping paths: "x/y" with "x"'],
    ),
    (
        volume(
            projected={
                "sources": [
                    {"secret": {"name": "s", "items": [{"key": "a", "path": "x"}]}},
                    {"downwardAPI": {"items": [{"path": "x/y", "fieldRef": {"fieldPath": "metadata.name"}}]}},
                    {},
                ]
            }
        ),
        [
            'volume "v" (Projected) has no sources provided',
            'volume "v" (Projected): overlapping paths: "x/y" (DownwardAPI) with "x" (Secret "s")',
        ],
    ),
    (
        spec(imagePullSecrets=[{"name": "a"}, {"name": "a"}, {}]),
        [
            'spec.imagePullSecrets[1].name: duplicate name "a"',
            'spec.imagePullSecrets[2].name: invalid empty name ""',
        ],
    ),
    (
        spec(hostAliases=[{"ip": "1.1.1.1"}, {"ip": "1.1.1.1"}]),
        ['spec.hostAliases[1].ip: duplicate ip "1.1.1.1"'],
    ),
    (
        spec(dnsConfig={"nameservers": ["2001:DB8:0::1"]}),
        [
            (
                'spec.dnsConfig.nameservers[0]: IPv6 address "2001:DB8:0::1" should be in RFC 5952 canonical '
                'format ("2001:db8::1")'
            )
        ],
    ),
    (
        container(resources={"requests": {"memory": "1500m"}}),
        [
            (
                'spec.containers[0].resources.requests[memory]: fractional byte value "1500m" is invalid, '
                "must be an integer"
            )
        ],
    ),
    (
        container(env=[{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]),
        [
            (
                'spec.containers[0].env[1]: hides previous definition of "A", which may be dropped '
                "when using apply"
            )
        ],
    ),
    (container(env=[{"name": "A", "value": "1"}, {"name": "A", "value": "$(A):2"}]), []),
    (
        container(ports=[PORT | {"hostIP": "1.1.1.1"}]),
        [
            (
                "spec.containers[0].ports[0]: hostIP set without hostPort: "
                "{Name: HostPort:0 ContainerPort:80 Protocol:TCP HostIP:1.1.1.1}"
            )
        ],
    ),
    (
        container(ports=[PORT, PORT]),
        [f"{PORTS}[1]: duplicate port definition with {PORTS}[0]"],
    ),
    (
        container(ports=[PORT, PORT | {"hostPort": 5}]),
        [f"{PORTS}[1]: overlapping port definition with {PORTS}[0]"],
    ),
    (
        container(ports=[PORT | {"hostPort": 5, "hostIP": "1.1.1.1"}, PORT | {"hostPort": 5}]),
        [f"{PORTS}[1]: dangerously ambiguous port definition with {PORTS}[0]"],
    ),
    (
        spec(containers=NAMED),
        [
            (
                f'spec.containers[1].ports[0]: duplicate port name "p" with {PORTS}[0], services and probes '
                f"that select ports by name will use {PORTS}[0]"
            )
        ],
    ),
    ({}, []),
]


@pytest.mark.parametrize(("change", "expected"), CASES)
def test_a_pod_is_warned_of_in_upstreams_words(change, expected):
    assert object_warnings.on_create(PODS, prepared(change)) == expected


def test_a_change_of_a_pod_is_not_looked_at_again_but_for_its_addresses():
    pod = prepared(spec(imagePullSecrets=[{}]))
    assert object_warnings.on_update(PODS, pod, pod) == []
    pod["status"]["podIPs"] = [{"ip": "::FFFF"}]
    assert object_warnings.on_update(PODS, pod, pod, "status") == [
        'status.podIPs[0].ip: IPv6 address "::FFFF" should be in RFC 5952 canonical format ("::ffff")'
    ]


def test_removed_features_of_nodes_are_warned_of():
    node = {"metadata": {"name": "n"}, "spec": {"externalID": "x", "configSource": {}}}
    said = [
        "spec.configSource: the feature is removed",
        "spec.externalID: this field is deprecated, and is unused by Kubernetes",
    ]
    assert object_warnings.on_create(NODES, node) == said
    assert object_warnings.on_update(NODES, node, node) == said
    assert object_warnings.on_update(NODES, node, node, "status") == []
    assert object_warnings.on_create(CONFIG_MAPS, {"metadata": {"name": "a.b"}}) == []


def test_warnings_have_an_end():
    ports = [{"containerPort": 80} for _ in range(3000)]
    assert len(object_warnings.on_create(PODS, prepared(container(ports=ports)))) == MAX_WARNINGS
