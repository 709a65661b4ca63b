"""The agent's status as text: what is wrong comes first, and no word is broken at 80 columns."""

import io
from typing import Any

import pytest
from rich.console import Console

from corelane.agent import agent_status
from corelane.view import agent_status as view

NOW = 10_000.0


def part(name: str, state: str = "ok", error: str = "", **more: Any) -> dict[str, Any]:
    fields = {"name": name, "state": state, "since": NOW - 300, "error": error, "retries": 0, "failures": 0}
    return fields | {"detail": ""} | more


REFUSED = (
    "kubelet https://127.0.0.1:10250: GET /pods: 403 Forbidden; grant the agent's account get on nodes/pods "
    "(kubelet 1.36, or 1.33 and later with feature gate KubeletFineGrainedAuthz), or get on nodes/proxy for "
    "older kubelets"
)
RUNNING = agent_status.document(
    "worker-1",
    running=True,
    startedAt=NOW - 7200,
    policy="pools",
    mode={
        "name": "owner",
        "reasons": ["the kubelet's CPU manager policy is none (/configz): corelane owns the cpusets"],
        "codes": ["mode-kubelet-none"],
        "allocates": True,
        "writesCPUs": "every container",
        "writesMems": True,
    },
    kubelet={
        "address": "https://127.0.0.1:10250",
        "cpuManagerPolicy": "none",
        "memoryManagerPolicy": "None",
        "topologyManagerPolicy": "none",
        "allocationsFrom": "",
        "fault": "",
    },
    runtime={
        "name": "containerd",
        "version": "1.7.24",
        "endpoint": "unix:///run/containerd/containerd.sock",
        "enforcement": "cgroup v2",
        "notice": "",
        "events": True,
    },
    nri={"connected": True, "why": "", "socket": "/var/run/nri/nri.sock", "answers": {}, "slowest": 0.0},
    sources=[
        part("containers", detail="2 containers"),
        part("kubelet pods", "failing", REFUSED, retries=3),
        part("kubelet configuration"),
    ],
    writes=[part("pods", "failing", "pods is forbidden", retries=2, detail="5 written, 2 waiting")],
    ledger={
        "path": "/var/lib/corelane/ledger.json",
        "generation": 41,
        "fault": "/var/lib/corelane/ledger.json: No space left on device",
        "since": NOW - 130,
        "held": 2,
    },
    containers={"confirmed": 5, "drifted": 1},
    notPinned=[
        {
            "pod": "shop/web",
            "container": "app",
            "cpus": "2-3",
            "allowed": "0-7",
            "message": "cannot write /sys/fs/cgroup/kubepods/pod1/c1/cpuset.cpus: EINVAL: no such CPUs",
        }
    ],
    podsWithoutRoom=[
        {
            "pod": "shop/db",
            "reason": "InsufficientCPUs",
            "message": "6 exclusive CPUs requested, 4 allocatable",
        }
    ],
)


def shown(status: dict[str, Any], width: int) -> str:
    file = io.StringIO()
    view.show(status, Console(file=file, width=width, highlight=False, soft_wrap=False), NOW)
    return file.getvalue()


@pytest.mark.parametrize("width", [80, 110, 200])
def test_lines_fit_and_break_between_words(width: int) -> None:
    text = shown(RUNNING, width)
    assert max(map(len, text.splitlines())) <= width
    words = set(text.split())
    for message in (REFUSED, RUNNING["notPinned"][0]["message"], *RUNNING["mode"]["reasons"]):
        assert set(message.split()) <= words
    assert "unix:///run/containerd/containerd.sock;" in words


def test_what_is_wrong_comes_before_what_works() -> None:
    text = shown(RUNNING, 110)
    first = text.splitlines()[:3]
    assert first[:2] == ["Agent of node worker-1", " agent          running for 2h"]
    assert first[2].endswith("4, see below")
    order = [text.index(title) for title in ("Problems", "Details", "Sources", "Writes", "Pods without room")]
    assert order == sorted(order)
    assert text.index("not written for 2m, no container is moved") < text.index("fails for 5m")
    lines = text[text.index("Sources") :].splitlines()
    assert [line.split()[0] for line in lines[4:7]] == ["kubelet", "containers", "kubelet"]
    assert "2 changes of containers wait" in text
    assert "2 writes wait: pods is forbidden" in text.replace("\n" + " " * 18, " ")


def test_a_healthy_agent_has_no_problems() -> None:
    well = RUNNING | {
        "sources": [part("containers")],
        "writes": [part("pods", detail="5 written, 0 waiting")],
        "ledger": RUNNING["ledger"] | {"fault": "", "held": 0},
        "notPinned": [],
        "podsWithoutRoom": [],
    }
    text = shown(well, 80)
    assert " problems     none\n" in text
    assert "Problems" not in text
    assert "generation 41, written" in text


def test_saved_state_is_shown_as_such_without_ages_of_what_never_was() -> None:
    text = shown(
        agent_status.document("vm", ledger={"path": "/x/ledger.json", "generation": 3, "fault": ""}), 80
    )
    assert "not running; saved state" in text
    assert "problems" not in text
    damaged = agent_status.document(
        "vm",
        fault="process 7 acts, but has no agent.sock",
        ledger={"path": "/x", "generation": 0, "fault": "no JSON"},
    )
    text = shown(damaged, 80)
    assert "process 7 acts, but has no agent.sock" in text
    assert " ledger   cannot be read: no JSON" in text
    assert "not written for" not in text


@pytest.mark.parametrize(
    ("seconds", "text"), [(-5, "0s"), (0.9, "0s"), (119, "119s"), (120, "2m"), (7200, "2h"), (200_000, "2d")]
)
def test_ages_are_in_their_largest_unit(seconds: float, text: str) -> None:
    assert view.age(seconds) == text
