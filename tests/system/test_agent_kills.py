"""`corelane agent run` beside real containerd, killed at every kind of step while pods come and go.

The machine has few CPUs, so one or two are exclusive: they change owner in every history again and again.
"""

import os
import random
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from support import containerd
from support.containerd import HAVE_NRI
from support.crash_lab import CrashLab, crash_lab

pytestmark = pytest.mark.system

KILLS = {"1.6": 24, "1.7": 26, "2": 6}
SEED = int(os.environ.get("CORELANE_SEED", "2026"))
MOST = {"list": 3, "ledger-sync": 12, "ledger-rename": 6, "cgroup": 4, "cri": 3, "nri": 2, "publish": 8}
"""How far from an agent's start it is killed at a kind of step."""
LIFE = 5
"""Seconds until an agent that does not come to its step is killed all the same, between two events."""


@pytest.fixture(params=KILLS)
def lab(request, tmp_path):
    (tmp_path / "cd").mkdir()
    with containerd.running(tmp_path / "cd", request.param) as runtime, crash_lab(runtime, tmp_path) as lab:
        if len(lab.machine.usable) < 2:
            pytest.skip("needs two CPUs")
        yield lab


class History:
    """What a kubelet, users and other programs do, drawn by chance."""

    def __init__(self, lab: CrashLab, chance: random.Random) -> None:
        self.lab, self.chance = lab, chance

    def step(self) -> None:
        steps = (*("exchange",) * 4, "restart", "crowd", "drift", "update", "calm")
        getattr(self, self.chance.choice(steps))()

    def owners(self) -> list:
        return [pod for pod in self.lab.pods.values() if pod.shape != "shared"]

    def exchange(self) -> None:
        """Exclusive containers end, and others are started at once."""
        for pod in self.owners():
            self.lab.delete(pod, object_first=self.chance.random() < 0.3, grace=self.chance.choice((0, 0, 1)))
        self.lab.add(self.chance.choice(("exclusive", "pair")), stubborn=self.chance.random() < 0.3)

    def crowd(self) -> None:
        """A second pod with exclusive CPUs comes, for which there may be no room; or a shared one goes."""
        shared = [pod for pod in self.lab.pods.values() if pod.shape == "shared"]
        if len(self.owners()) < 2:
            self.lab.add("exclusive")
        if len(shared) > 2:
            self.lab.delete(self.chance.choice(shared))
        else:
            self.lab.add("shared")

    def restart(self) -> None:
        if pods := list(self.lab.pods.values()):
            pod = self.chance.choice(pods)
            self.lab.restart(pod, self.chance.choice(sorted(pod.containers)))

    def drift(self) -> None:
        """Something else writes a container's cpuset."""
        if pods := list(self.lab.pods.values()):
            self.lab.drift(self.chance.choice(pods).containers["app"], self.lab.machine.usable)

    def update(self) -> None:
        """The kubelet changes shares: the runtime applies its whole record with them."""
        if pods := list(self.lab.pods.values()):
            ident = self.chance.choice(pods).containers["app"]
            self.lab.update(ident, shares=self.chance.randint(2, 2000))

    def calm(self) -> None:
        time.sleep(self.chance.uniform(0.05, 0.5))


def kill_points(release: str, chance: random.Random) -> Iterator[str]:
    """Steps at which to kill: every kind and side as often as any other."""
    kinds = [kind for kind in MOST if kind != "nri" or release in HAVE_NRI]
    points = [(kind, side) for kind in kinds for side in ("before", "after")]
    while True:
        chance.shuffle(points)
        for kind, side in points:
            yield f"{kind}:{side}:{chance.randint(1, MOST[kind])}"


def test_kills_between_any_two_steps_give_no_cpu_two_owners_and_move_no_exclusive_container(lab):
    chance = random.Random(f"{SEED} {lab.runtime.release}")
    history, kills, points = History(lab, chance), 0, kill_points(lab.runtime.release, chance)
    lab.add("shared")
    while kills < KILLS[lab.runtime.release]:
        lab.start_agent(next(points))
        if chance.random() < 0.7:
            lab.wait_listed()
        deadline = time.monotonic() + LIFE
        while lab.alive and time.monotonic() < deadline:
            history.step()
        lab.kill_agent()
        kills += 1
        if kills % 6 == 0:  # containers change while no agent runs, too; then everything is put right
            history.step()
            lab.start_agent()
            lab.converge()
            lab.kill_agent()
        assert lab.faults() == []
    lab.start_agent()
    seconds = lab.converge()
    assert lab.faults() == []
    steps = Counter(line["step"] for line in lab.log() if line["killed"])
    print(f"killed {kills} times, at steps {dict(steps)}; the last restart took {seconds:.1f} s to settle")
    assert steps.total() >= kills / 2
