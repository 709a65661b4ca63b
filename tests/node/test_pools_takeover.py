from corelane import node
from corelane.cpuset import CPUSet
from corelane.node.entries import Origin, Sharing
from corelane.node.kubelet.checkpoint import Checkpoint
from corelane.node.recovery.takeover import Stage, Takeover, complete, follow, take_over, takeover
from corelane.workload import PodQOS
from support.node_asks import LAPTOP, container, cpus, init, pod
from support.pool_asks import admitted, bound, labelled, pools


def checkpoint(**pods):
    """Pod UID to container to CPUs, with the pool that a kubelet would have left."""
    entries = {
        uid: {name: cpus(text) for name, text in containers.items()} for uid, containers in pods.items()
    }
    return Checkpoint("static", CPUSet(), entries)


WEB = pod("web", init("setup", 1000), container("app", 2000), container("proxy", 500))


def test_pods_that_the_kubelet_pinned_keep_their_cpus_alone_until_they_end():
    state, problems = take_over(pools(LAPTOP), checkpoint(web={"app": "1,5"}), [WEB])
    assert problems == []
    assert node.validate(state) == []
    assert bound(state, "web") == {"app": "1,5"}
    entry = state.entries["web", "app"]
    assert (entry.origin, entry.sharing, entry.cls) == (Origin.KUBELET, Sharing.ALONE, "LSR")
    assert state.runs_on(state.entries["web", "proxy"]) == state.shared_pool
    assert state.best_effort_pool.isdisjoint(cpus("1,5")), "best effort is kept off what a kubelet pinned"
    assert takeover(state) == Takeover(Stage.BOTH, ("test/web",), cpus("1,5"))
    after = node.release(state, "web")
    assert after.shared_pool == LAPTOP.usable
    assert takeover(after).stage is Stage.DONE


def test_cpus_of_a_pod_as_a_whole_are_kept_for_it():
    file = Checkpoint("static", entries={"web": {"app": cpus("1")}}, pods={"web": cpus("1,5")}, version=4)
    state, problems = take_over(pools(LAPTOP), file, [WEB])
    assert problems == []
    assert node.validate(state) == []
    assert state.bound == cpus("1,5")
    assert node.release(state, "web").bound == cpus("")


def test_newcomers_are_placed_round_what_the_kubelet_pinned():
    state, _ = take_over(pools(LAPTOP), checkpoint(web={"app": "1,5"}), [WEB])
    state = admitted(state, labelled("new", PodQOS.LSR, 4000))
    assert bound(state, "new") == {"a": "2-3,6-7"}


def test_while_policy_is_none_the_kubelet_manages_cpus():
    assert takeover(node.new(LAPTOP, node.NodeConfig("none"))).stage is Stage.KUBELET


def test_a_file_may_be_taken_over_twice():
    file = checkpoint(web={"app": "1,5"})
    once, _ = take_over(pools(LAPTOP), file, [WEB])
    assert take_over(once, file, [WEB]) == (once, [])


def test_a_pod_known_by_its_uid_alone_is_completed_when_it_is_told_of():
    state, _ = take_over(pools(LAPTOP), checkpoint(web={"app": "1,5"}))
    assert takeover(state).pods == ("/pod with UID web",)
    assert state.requested == 2000
    told = complete(state, WEB)
    assert node.validate(told) == []
    assert [entry.container for entry in told.of_pod("web")] == ["app", "setup", "proxy"]
    assert {entry.pod for entry in told.of_pod("web")} == {"test/web"}
    assert told.requested == WEB.cpu_request
    assert complete(told, WEB) is told
    assert node.admit(state, WEB)[0] == told, "admission completes it too"


def test_a_pod_of_our_own_needs_no_completing():
    state = admitted(pools(LAPTOP), WEB)
    assert complete(state, WEB) is state
    assert complete(state, pod("other", container("a", 1000))) is state


def test_cpus_that_are_gone_or_have_an_owner_are_named_and_left_out():
    state = admitted(pools(LAPTOP), labelled("ours", PodQOS.LSE, 2000))
    taken = bound(state, "ours")["a"]
    state, problems = take_over(state, checkpoint(old={"x": "1-2"}, older={"y": "3,40"}))
    assert node.validate(state) == []
    assert bound(state, "ours") == {"a": taken}
    assert {problem.code for problem in problems} == {"doubled", "lost"}
    assert bound(state, "older") == {"y": "3"}


def test_reserved_cpus_move_aside_for_what_the_kubelet_pinned():
    state, _ = take_over(pools(LAPTOP), checkpoint(web={"app": "0,4"}), [WEB])
    assert node.validate(state) == []
    assert state.reserved
    assert state.reserved.isdisjoint(cpus("0,4"))


def test_an_old_file_that_names_containers_by_id_is_told_as_such():
    state = pools(LAPTOP)
    after, problems = take_over(state, Checkpoint("static", entries={"": {"f00": cpus("1")}}, version=1))
    assert after is state
    assert "start the kubelet, which rewrites it" in problems[0].text


def test_the_stages_survive_the_ledgers_file():
    state, _ = take_over(pools(LAPTOP), checkpoint(web={"app": "1,5"}), [WEB])
    read = node.codec.decode(node.codec.encode(state), state.machine, state.config)
    assert takeover(read) == takeover(state)


def test_a_label_says_the_class_of_a_pinned_pod():
    state, _ = take_over(pools(LAPTOP), checkpoint(x={"a": "1,5"}), [labelled("x", PodQOS.LSE, 2000)])
    assert state.entries["x", "a"].cls == "LSE"


# -- while the file changes


def followed(state, file, **more):
    state, problems = follow(state, file, **more)
    assert node.validate(state) == []
    return state, [problem.text for problem in problems]


def test_cpus_come_and_go_with_the_entries_of_the_file():
    state, _ = followed(pools(LAPTOP), checkpoint(web={"app": "1,5"}, db={"a": "2,6"}))
    assert takeover(state).cpus == cpus("1-2,5-6")
    state, _ = followed(state, checkpoint(db={"a": "2,6"}, new={"x": "3"}))
    assert takeover(state) == Takeover(Stage.BOTH, ("/pod with UID db", "/pod with UID new"), cpus("2-3,6"))
    state, _ = followed(state, checkpoint())
    assert takeover(state).stage is Stage.DONE
    assert state.shared_pool == LAPTOP.usable
    assert not state.pods


def test_a_file_that_says_the_same_changes_nothing():
    file = checkpoint(web={"app": "1,5"})
    state, _ = followed(pools(LAPTOP), file, requests=[WEB])
    assert followed(state, file) == (state, [])


def test_siblings_go_with_the_last_container_that_was_pinned():
    state, _ = followed(pools(LAPTOP), checkpoint(web={"app": "1", "proxy": "5"}), requests=[WEB])
    state, _ = followed(state, checkpoint(web={"app": "1"}))
    assert bound(state, "web") == {"app": "1"}
    state, _ = followed(state, checkpoint())
    assert not state.entries


def test_cpus_that_others_had_are_held_once_these_have_ended():
    state = admitted(pools(LAPTOP), labelled("ours", PodQOS.LSE, 2000))
    assert bound(state, "ours") == {"a": "1,5"}
    file = checkpoint(web={"app": "5-6"})
    state, told = followed(state, file)
    assert told == ["/pod with UID web/app: CPU 5 also allocated to another container; keeps CPU 6"]
    assert followed(state, file) == (state, []), "it is said once"
    state, _ = followed(node.release(state, "ours"), file)
    assert bound(state, "web") == {"app": "5-6"}


def test_of_a_kubelet_that_leaves_cpus_alone_by_now_pods_keep_theirs_as_long_as_they_run():
    state, _ = followed(pools(LAPTOP), checkpoint(web={"app": "1,5"}, db={"a": "2"}))
    none = Checkpoint("none")
    assert followed(state, none) == (state, []), "who runs is not known"
    state, _ = followed(state, none, running={"db", "other"})
    assert takeover(state).cpus == cpus("2")
    state, _ = followed(state, none, running=())
    assert takeover(state).stage is Stage.DONE


def test_while_policy_is_none_nothing_is_held():
    state = node.new(LAPTOP, node.NodeConfig("none"))
    assert follow(state, checkpoint(web={"app": "1,5"})) == (state, [])


def test_an_init_container_that_lent_its_cpus_is_no_conflict():
    state, told = followed(pools(LAPTOP), checkpoint(web={"app": "1,5", "setup": "1,5", "other": "2"}))
    assert told == []
    assert takeover(state).cpus == cpus("1-2,5")


def test_a_cpu_that_the_last_of_the_pool_takes_is_told_once():
    """The pool has lost every CPU to both, so the kubelet's container with the most is not held to all."""
    state = admitted(pools(LAPTOP, reserved="0"), labelled("ours", PodQOS.LSE, 2000))
    assert bound(state, "ours") == {"a": "1,5"}
    file = checkpoint(web={"app": "0,2-4,6-7"})
    state, told = followed(state, file)
    gives = "/pod with UID web/app: CPU 7 moved to the shared pool, which had no CPU left; keeps CPUs 0,2-4,6"
    assert told == [gives, "CPU 0 should be reserved, but is not free: have 7"]
    assert followed(state, file) == (state, [])


def test_a_pod_known_by_its_uid_alone_takes_the_name_that_others_know():
    file = checkpoint(web={"app": "1,5"}, db={"a": "2"})
    state, _ = followed(pools(LAPTOP), file)
    state, _ = followed(state, file, names={"web": "shop/front-0", "other": "x/y"})
    assert takeover(state).pods == ("/pod with UID db", "shop/front-0")
    assert followed(state, file, names={"web": "shop/front-0"}) == (state, [])
    told = complete(state, WEB)
    assert {entry.pod for entry in told.of_pod("web")} == {"test/web"}
    assert len(told.of_pod("web")) == 3
    assert complete(told, WEB) is told
