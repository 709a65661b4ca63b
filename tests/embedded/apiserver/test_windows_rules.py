"""Windows pods and the options of Windows containers, refused in upstream's words."""

import pytest

from support.pod_faults import agree, container, faults, merged, spec

WINDOWS = spec(os={"name": "windows"})
USERS = {
    "ContainerUser": [],
    "NT AUTHORITY\\Local Service": [],
    "a.b-c.example\\me": [],
    "": ["runAsUserName cannot be an empty string"],
    "a\tb": ["runAsUserName cannot contain control characters"],
    "a\\b\\c": ["runAsUserName cannot contain more than one backslash"],
    "\\me": ["runAsUserName's Domain doesn't match the NetBios nor the DNS format"],
    ".a\\me": ["runAsUserName's Domain doesn't match the NetBios nor the DNS format"],
    "d\\": ["runAsUserName's User cannot be empty"],
    ". .": ["runAsUserName's User cannot contain only periods or spaces"],
    "a@b": ["runAsUserName's User cannot contain the following characters: \"/\\:;|=,+*?<>@[]"],
    "x" * 105: ["runAsUserName's User length must not be longer than 104 characters"],
    ("x" * 256) + "\\me": [
        "runAsUserName's Domain length must be under 256 characters",
        "runAsUserName's Domain doesn't match the NetBios nor the DNS format",
    ],
}


@pytest.mark.parametrize("user", USERS)
def test_the_user_of_a_windows_container_has_a_domain_and_an_account(user):
    found = faults(container(securityContext={"windowsOptions": {"runAsUserName": user}}))
    where = "spec.containers[0].securityContext.windowsOptions.runAsUserName: Invalid value: "
    assert agree(found, [f"{where}…: {fault}" for fault in USERS[user]])


def test_credentials_are_neither_empty_nor_large():
    for text, why in (
        ("", "gmsaCredentialSpec cannot be an empty string"),
        ("x" * 65537, "gmsaCredentialSpec size must be under 64 KiB"),
    ):
        found = faults(spec(securityContext={"windowsOptions": {"gmsaCredentialSpec": text}}))
        where = "spec.securityContext.windowsOptions.gmsaCredentialSpec: Invalid value: "
        assert agree(found, [f"{where}…: {why}"])


def host_process(value):
    return {} if value is None else {"securityContext": {"windowsOptions": {"hostProcess": value}}}


def pod(whole, *own, **fields):
    containers = [{"name": f"c{n}", "image": "i", **host_process(one)} for n, one in enumerate(own)]
    return spec(containers=containers, **host_process(whole), **fields)


NETWORK = (
    "spec.hostNetwork: Invalid value: false: hostNetwork must be true if pod contains any hostProcess "
    "containers"
)
IDENTICAL = (
    "spec.containers[0].securityContext.windowsOptions.hostProcess: Invalid value: true: pod hostProcess "
    "value must be identical if both are specified, was false"
)
MIXED = (
    'spec: Invalid value: "": If pod contains any hostProcess containers then all containers must be '
    "HostProcess containers"
)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (pod(True, None, hostNetwork=True), []),
        (pod(None, False), []),
        (pod(True, None), [NETWORK]),
        (pod(None, True, None), [MIXED, NETWORK]),
        (pod(False, True, hostNetwork=True), [IDENTICAL]),
    ],
)
def test_processes_of_the_host_come_all_together_in_its_network(change, expected):
    assert faults(change) == expected


def test_a_windows_pod_has_no_linux_fields():
    linux = spec(
        hostPID=True,
        hostIPC=False,
        hostUsers=True,
        shareProcessNamespace=False,
        securityContext={"runAsUser": 1, "fsGroup": 2, "sysctls": [{"name": "a", "value": "1"}]},
    )
    own = container(securityContext={"runAsUser": 1, "privileged": False, "capabilities": {}})
    names = ["hostUsers", "hostPID", "securityContext.fsGroup", "securityContext.sysctls"]
    names += ["shareProcessNamespace", "securityContext.runAsUser"]
    expected = [f"spec.{name}" for name in names]
    expected += [
        f"spec.containers[0].securityContext.{name}" for name in ("capabilities", "privileged", "runAsUser")
    ]
    found = faults(WINDOWS, linux, own)
    assert found == [f"{name}: Forbidden: cannot be set for a windows pod" for name in expected]
    assert faults(merged(linux, own)) == []
