"""Pods that are refused, and why: what concerns all of one."""

import pytest

from support.pod_faults import agree, container, faults, merged, spec

PODS = [
    (
        spec(restartPolicy="Sometimes"),
        (
            'spec.restartPolicy: Unsupported value: "Sometimes": supported values: "Always", '
            '"OnFailure", "Never"'
        ),
    ),
    (
        spec(dnsPolicy="X"),
        (
            'spec.dnsPolicy: Unsupported value: "X": supported values: "ClusterFirstWithHostNet", '
            '"ClusterFirst", "Default", "None"'
        ),
    ),
    (
        spec(activeDeadlineSeconds=0),
        "spec.activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647, inclusive",
    ),
    (
        spec(serviceAccountName="A"),
        'spec.serviceAccountName: Invalid value: "A": a lowercase RFC 1123 subdomain…',
    ),
    (spec(hostname="A"), 'spec.hostname: Invalid value: "A": a lowercase RFC 1123 label…'),
    (spec(subdomain="A"), 'spec.subdomain: Invalid value: "A": a lowercase RFC 1123 label…'),
    (spec(hostname="a.b"), 'spec.hostname: Invalid value: "a.b": must not contain dots'),
    (
        spec(setHostnameAsFQDN=True, hostnameOverride="a"),
        "spec.hostnameOverride: Forbidden: may not be specified when setHostnameAsFQDN is true",
    ),
    (
        spec(hostNetwork=True, hostnameOverride="a"),
        "spec.hostnameOverride: Forbidden: may not be specified when hostNetwork is true",
    ),
    (spec(hostnameOverride="a" * 65), "spec.hostnameOverride: Too long: may not be more than 64 bytes"),
    (
        spec(hostAliases=[{"ip": "1", "hostnames": ["A"]}]),
        (
            'spec.hostAliases[0].ip: Invalid value: "1": must be a valid IP address, (e.g. 10.9.8.7 or '
            "2001:db8::ffff)"
        ),
        'spec.hostAliases[0].hostnames[0]: Invalid value: "A": a lowercase RFC 1123 subdomain…',
    ),
    (
        spec(hostAliases=[{"ip": ""}]),
        (
            'spec.hostAliases[0].ip: Invalid value: "": must be a valid IP address, (e.g. 10.9.8.7 or '
            "2001:db8::ffff)"
        ),
    ),
    (
        spec(priorityClassName="A"),
        'spec.priorityClassName: Invalid value: "A": a lowercase RFC 1123 subdomain…',
    ),
    (
        spec(runtimeClassName="A"),
        'spec.runtimeClassName: Invalid value: "A": a lowercase RFC 1123 subdomain…',
    ),
    (spec(preemptionPolicy=""), "spec.preemptionPolicy: Required value"),
    (
        spec(preemptionPolicy="X"),
        'spec.preemptionPolicy: Unsupported value: "X": supported values: "PreemptLowerPriority", "Never"',
    ),
    (
        spec(overhead={"cpu": "-1"}),
        'spec.overhead.limits[cpu]: Invalid value: "-1": must be greater than or equal to 0',
    ),
    (
        spec(overhead={"foo": "1"}),
        (
            'spec.overhead.limits[foo]: Invalid value: "foo": must be a standard resource type or '
            "fully qualified"
        ),
        'spec.overhead.limits[foo]: Invalid value: "foo": must be a standard resource for containers',
    ),
    (
        spec(readinessGates=[{"conditionType": "a b"}]),
        'spec.readinessGates[0].conditionType: Invalid value: "a b": name part must consist of…',
    ),
    (
        spec(hostUsers=False, hostNetwork=True, hostPID=True, hostIPC=True),
        "spec.hostNetwork: Forbidden: when `hostUsers` is false",
        "spec.HostPID: Forbidden: when `hostUsers` is false",
        "spec.HostIPC: Forbidden: when `hostUsers` is false",
    ),
    (
        merged(spec(hostNetwork=True), container(ports=[{"containerPort": 1, "hostPort": 2}])),
        (
            "spec.containers[0].ports[0].hostPort: Invalid value: 2: must match `containerPort` when "
            "`hostNetwork` is true"
        ),
    ),
    (
        spec(hostPID=True, shareProcessNamespace=True),
        (
            "spec.securityContext.shareProcessNamespace: Invalid value: true: ShareProcessNamespace "
            "and HostPID cannot both be enabled"
        ),
    ),
    (
        spec(dnsPolicy="None"),
        "spec.dnsConfig: Required value: must provide `dnsConfig` when `dnsPolicy` is None",
    ),
    (
        spec(dnsPolicy="None", dnsConfig={}),
        (
            "spec.dnsConfig.nameservers: Required value: must provide at least one DNS nameserver when "
            "`dnsPolicy` is None"
        ),
    ),
    (
        spec(dnsConfig={"nameservers": ["x", "1.1.1.1", "1.1.1.2", "::1"]}),
        (
            'spec.dnsConfig.nameservers: Invalid value: ["x","1.1.1.1","1.1.1.2","::1"]: must not have '
            "more than 3 nameservers"
        ),
        (
            'spec.dnsConfig.nameservers[0]: Invalid value: "x": must be a valid IP address, (e.g. '
            "10.9.8.7 or 2001:db8::ffff)"
        ),
    ),
    (
        spec(dnsConfig={"searches": ["a b", ".", "x."]}),
        'spec.dnsConfig.searches[0]: Invalid value: "a b": a lowercase RFC 1123 subdomain…',
    ),
    (
        spec(dnsConfig={"searches": [f"a{i}" for i in range(33)]}),
        'spec.dnsConfig.searches: Invalid value: ["a0",…]: must not have more than 32 search paths',
    ),
    (
        spec(dnsConfig={"options": [{"value": "1"}]}),
        "spec.dnsConfig.options[0]: Required value: must not be empty",
    ),
    (spec(os={"name": "bsd"}), 'spec.os: Unsupported value: "bsd": supported values: "linux", "windows"'),
    (spec(os={"name": ""}), "spec.os.name: Required value"),
    (
        spec(os={"name": "linux"}, securityContext={"windowsOptions": {}}),
        "spec.securityContext.windowsOptions: Forbidden: windows options cannot be set for a linux pod",
    ),
    (
        spec(
            resourceClaims=[
                {"name": ""},
                {"name": "A", "resourceClaimName": "x"},
                {"name": "b"},
                {"name": "b", "resourceClaimName": "A"},
                {"name": "c", "resourceClaimName": "x", "resourceClaimTemplateName": "y"},
            ]
        ),
        "spec.resourceClaims[0].name: Required value",
        "spec.resourceClaims[0]: Invalid value: …",
        'spec.resourceClaims[1].name: Invalid value: "A": a lowercase RFC 1123 label…',
        "spec.resourceClaims[2]: Invalid value: …",
        'spec.resourceClaims[3].name: Duplicate value: "b"',
        'spec.resourceClaims[3].resourceClaimName: Invalid value: "A": a lowercase RFC 1123 subdomain…',
        "spec.resourceClaims[4]: Invalid value: …",
    ),
    (
        spec(securityContext={"fsGroup": -1, "runAsUser": -1, "supplementalGroups": [-1]}),
        "spec.securityContext.fsGroup: Invalid value: -1: must be between 0 and 2147483647, inclusive",
        "spec.securityContext.runAsUser: Invalid value: -1: must be between 0 and 2147483647, inclusive",
        (
            "spec.securityContext.supplementalGroups[0]: Invalid value: -1: must be between 0 and "
            "2147483647, inclusive"
        ),
    ),
    (
        spec(securityContext={"fsGroupChangePolicy": "X"}),
        (
            'spec.securityContext.fsGroupChangePolicy: Unsupported value: "X": supported values: '
            '"Always", "OnRootMismatch"'
        ),
    ),
    (
        spec(securityContext={"supplementalGroupsPolicy": "X"}),
        (
            'spec.securityContext.supplementalGroupsPolicy: Unsupported value: "X": supported values: '
            '"Merge", "Strict"'
        ),
    ),
    (
        spec(securityContext={"seLinuxChangePolicy": "X"}),
        ('spec.securityContext.seLinuxChangePolicy: Unsupported value: "X": supported values: "Recursive"'),
    ),
    (
        spec(
            securityContext={
                "sysctls": [
                    {"name": "", "value": ""},
                    {"name": "A", "value": ""},
                    {"name": "kernel.sem", "value": ""},
                    {"name": "kernel.sem", "value": ""},
                ]
            }
        ),
        "spec.securityContext.sysctls[0].name: Required value",
        'spec.securityContext.sysctls[1].name: Invalid value: "A": must have at most 253 characters…',
        'spec.securityContext.sysctls[3].name: Duplicate value: "kernel.sem"',
    ),
    (
        spec(
            hostNetwork=True,
            hostIPC=True,
            securityContext={
                "sysctls": [{"name": "net.a", "value": ""}, {"name": "kernel/sem", "value": ""}]
            },
        ),
        (
            'spec.securityContext.sysctls[0].name: Invalid value: "net.a": may not be specified when '
            "'hostNetwork' is true"
        ),
        (
            'spec.securityContext.sysctls[1].name: Invalid value: "kernel/sem": may not be specified '
            "when 'hostIPC' is true"
        ),
    ),
    (
        container(securityContext={"procMount": "Unmasked"}),
        (
            'spec.containers[0].securityContext.procMount: Invalid value: "Unmasked": `hostUsers` must '
            "be false to use `Unmasked`"
        ),
    ),
    (
        container(
            env=[{"name": "A", "valueFrom": {"fileKeyRef": {"volumeName": "x", "path": "f", "key": "k"}}}]
        ),
        'spec.containers[0].env[0].valueFrom.fileKeyRef.volumeName: Not found: "x"',
    ),
    (
        merged(
            spec(volumes=[{"name": "x", "hostPath": {"path": "/a"}}]),
            container(
                env=[{"name": "A", "valueFrom": {"fileKeyRef": {"volumeName": "x", "path": "f", "key": "k"}}}]
            ),
        ),
        (
            'spec.containers[0].env[0].valueFrom.fileKeyRef.volumeName: Invalid value: "x": referenced '
            "volume must be of type emptyDir"
        ),
    ),
    (
        spec(dnsConfig={"searches": ["a." * 120 + "a"] * 9}),
        (
            'spec.dnsConfig.searches: Invalid value: ["a.a.…: must not have more than 2048 characters '
            "(including spaces) in the search list"
        ),
    ),
    (
        spec(hostAliases=[{"ip": "::ffff:1.2.3.4"}]),
        'spec.hostAliases[0].ip: Invalid value: "::ffff:1.2.3.4": must not be an IPv4-mapped IPv6 address',
    ),
    (
        spec(hostAliases=[{"ip": "1.02.3.4"}]),
        'spec.hostAliases[0].ip: Invalid value: "1.02.3.4": must not have leading 0s',
    ),
]


@pytest.mark.parametrize(("change", "expected"), [(change, expected) for change, *expected in PODS])
def test_a_pod_is_refused_in_upstreams_words(change, expected):
    assert agree(faults(change), expected)
