"""The local runtime and the demo on a real kernel's cgroup v2."""

import asyncio
from typing import Any

import pytest

from support import cgroup2_scenes


class Story:
    """The facts of each scene, which is played when they are first needed."""

    def __init__(self) -> None:
        self._scenes = {scene.__name__: (scene, seconds) for scene, seconds in cgroup2_scenes.STORY}
        self._facts: dict[str, dict[str, Any]] = {}

    def of(self, name: str) -> dict[str, Any]:
        if name not in self._facts:
            self._facts[name] = asyncio.run(cgroup2_scenes.play(*self._scenes[name]))
        facts = self._facts[name]
        assert "error" not in facts, facts["error"]
        if "not here" in facts:
            pytest.skip(facts["not here"])
        return facts


@pytest.fixture(scope="module")
def story() -> Story:
    return Story()


def test_the_runtime_opens_on_cgroup_v2_and_leaves_no_group(story):
    facts = story.of("opening")
    assert (facts["enforcement"], facts["notice"]) == ("cgroup v2", "")
    assert facts["open"] == ["corelane"]
    assert {"cpuset", "cpu", "memory"} <= {*facts["handed down"]}
    assert facts["left"] == []


def test_containers_start_in_groups_of_their_own_as_asked(story):
    facts = story.of("starting_and_updating")
    started, side = facts["started"], facts["side"]
    assert started["files"] == {
        "cpuset.cpus": "2-3",
        "cpuset.cpus.effective": "2-3",
        "cpuset.mems": "1",
        "cpu.weight": "174",
        "cpu.max": "200000 100000",
    }
    assert (side["files"]["cpuset.cpus"], side["files"]["cpu.max"]) == ("0-1", "max 100000")
    assert side["files"]["cpu.weight"] == "59"
    assert facts["pod"] == "98", "as the kubelet weighs a pod of 2.5 CPUs"
    assert facts["main pid"] in facts["pids"]
    assert len(facts["pids"]) == 2
    assert side["pids"] == [facts["side pid"]]
    assert facts["processes above"] == []


def test_every_task_of_a_container_may_use_its_cpus_and_no_others(story):
    facts = story.of("starting_and_updating")
    assert facts["started"]["allowed"] == ["2-3"] * 5, "the main thread, three more, and a child"
    assert facts["started"]["told"] == facts["started"]["allowed"]
    assert facts["side"]["allowed"] == ["0-1"]


def test_an_update_moves_what_runs_and_touches_nobody_else(story):
    facts = story.of("starting_and_updating")
    moved, shrunk = facts["moved"], facts["shrunk"]
    assert moved["allowed"] == moved["told"] == ["1-3"] * 5
    assert moved["files"] == {
        "cpuset.cpus": "1-3",
        "cpuset.cpus.effective": "1-3",
        "cpuset.mems": "0-1",
        "cpu.weight": "100",
        "cpu.max": "max 100000",
    }
    assert shrunk["allowed"] == shrunk["told"] == ["1"] * 5
    assert (shrunk["files"]["cpuset.cpus"], shrunk["files"]["cpu.max"]) == ("1", "5000 100000")
    assert facts["side afterwards"] == facts["side"]["files"]
    assert facts["left"] == []


def test_no_task_leaves_its_cpus_by_asking_for_others(story):
    assert story.of("trying_to_leave")["said"] == ["[2, 3]", "22", "[2, 3]"]


def test_the_kernel_throttles_at_the_limit(story):
    assert story.of("throttling")["throttled periods"] > 0


def test_memory_limits_hold_and_the_whole_container_ends(story):
    facts = story.of("out_of_memory")
    assert facts["ends"] == {
        "main": [137, True],
        "child": [137, True],
        "within": [0, False],
        "free": [0, False],
        "pod": [137, True],
    }
    files = facts["files"]
    assert (files["memory.max"], files["memory.oom.group"]) == (str(32 << 20), "1")
    assert files.get("memory.swap.max", "0") == "0"
    assert files["pod"] == str(128 << 20)
    assert facts["left"] == []


def test_a_stop_ends_every_process_even_those_that_ignore_it(story):
    facts = story.of("stopping")
    assert facts["processes"] == 4
    assert facts["alive"] == []
    assert facts["group"] is False
    assert (facts["state"], facts["signal"]) == ("exited", 9)


def test_what_a_container_leaves_behind_ends_with_it(story):
    facts = story.of("ending_by_itself")
    assert (facts["exit code"], facts["alive"], facts["group"]) == (7, [], False)


def test_containers_outlive_a_killed_runtime_and_are_adopted_in_their_groups(story):
    facts = story.of("adopting")
    assert facts["same"]
    assert facts["pid"]
    assert (facts["state"], facts["allowed"]) == ("running", ["0"])
    assert facts["updated"]["cpuset.cpus"] == facts["updated"]["cpuset.cpus.effective"] == "2-3"
    assert facts["updated"]["cpu.max"] == "150000 100000"
    assert facts["allowed then"] == ["2-3"]
    assert facts["exit code"] == 3, "of the one that ended while nobody looked"
    assert facts["alive"] == []


def test_a_cpu_that_goes_offline_is_not_lost_for_the_container(story):
    facts = story.of("losing_a_cpu")
    assert facts["without"]["files"]["cpuset.cpus"] == "2-3"
    assert facts["without"]["allowed"] == ["2"]
    assert facts["back"]["cpuset.cpus"] == "2-3"
    assert facts["allowed"] == ["2-3"]


def test_an_ordinary_user_works_in_a_delegated_group(story):
    facts = story.of("delegated")
    assert facts["uid"] != 0
    assert (facts["enforcement"], facts["notice"]) == ("cgroup v2", "")
    assert (facts["files"]["cpuset.cpus"], facts["files"]["cpu.max"]) == ("1-2", "50000 100000")
    assert (facts["allowed"], facts["pids"]) == (["1-2"], True)
    assert facts["left"] == ["inner"]


def test_where_no_group_can_hold_processes_affinity_does_and_the_reason_is_said(story):
    facts = story.of("boxed_in")
    assert (facts["inside"], facts["beside"]) == (True, True)
    assert facts["enforcement"] == "affinity"
    assert "processes live in this group" in facts["notice"]
    assert facts["allowed"] == ["2"]
    assert facts["type"] == "domain", "as it was"


def test_the_demo_holds_exclusive_cpus_by_cgroup_v2(story):
    facts = story.of("demo")
    assert (facts["exit"], facts["ok"]) == (0, True), facts["errors"]
    (lane,) = {check["wanted"] for check in facts["checks"] if check["exclusive"]}
    assert lane in facts["lanes"], "the cpuset said so while it ran"
    assert all(check["ok"] and check["allowed"] == [check["wanted"]] for check in facts["checks"])
    assert any(step["exclusive"] for step in facts["sharedPool"])
    assert (facts["left"], facts["groups"]) == ([], [])
