"""The phases of a soak: broken files, kills, a steady time, the end; every breach has its moment."""

import asyncio
import json
import os
import platform
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import soak_faults
import soak_kernel as kernel
from soak_checks import Checks
from soak_faults import Fault, Ground
from soak_pods import EXCLUSIVE, Workload
from soak_up import NODE, Ended, NoAnswer, Up
from soak_watches import Watches

ORDERS: Final = "what the API accepted is carried out"
WATCHES: Final = "watches agree with lists"
SAID: Final = "a fault is reported, without a traceback"
STARTS: Final = "corelane starts, or names a remedy"
STOPS: Final = "corelane ends in order"
CLEAN: Final = "nothing left after corelane down --purge"
LOGS: Final = "logs can be asked for"
SETTLE_SECONDS: Final = 90.0
_MOST_BREACHES: Final = 60
_MOST_SHOWN: Final = 5


@dataclass(frozen=True)
class Options:
    """What is done, and for how long. `churn`, `steady` and `idle` are seconds."""

    seed: int
    pods: int = 50
    watches: int = 50
    kills: int = 60
    faults: int = 1000
    only: str = ""
    churn: float = 0.0
    steady: float = 1860.0
    idle: float = 120.0
    cgroups: str = "auto"
    other_instances: str = "block"


@dataclass
class Breach:
    """An invariant that did not hold. `at`: seconds since the beginning."""

    invariant: str
    phase: str
    at: float
    time: str
    life: int
    step: str
    what: str


@dataclass
class Report:
    """What was done and seen, for people and programs."""

    options: Options
    machine: str = f"Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} CPUs"
    phases: list[dict[str, Any]] = field(default_factory=list)
    checked: dict[str, int] = field(default_factory=dict)
    breaches: list[Breach] = field(default_factory=list)
    figures: dict[str, float] = field(default_factory=dict)
    samples: list[dict[str, float]] = field(default_factory=list)
    steps: list[dict[str, Any]] = field(default_factory=list)
    watches: dict[str, int] = field(default_factory=dict)

    def plain(self) -> dict[str, Any]:
        return asdict(self)


class Broken(Exception):  # noqa: N818 - a state
    """So much is broken that going on shows nothing more."""


class Soak:
    """One run. `work` holds the data directory and nothing else; `logs` are kept after a breach."""

    def __init__(self, options: Options, work: Path, logs: Path) -> None:
        self.options, self.work, self.logs = options, work, logs
        self.report = Report(options)
        self.began = time.monotonic()
        self.phase, self.step = "", ""
        shared = ("--other-instances", options.other_instances)
        self.up = Up(work / "data", logs, "--cgroups", options.cgroups, *shared)
        marks = kernel.Containers(f"{options.seed}-{os.getpid()}")
        lanes = min(8, max(0, len(os.sched_getaffinity(0)) - 1))
        self.workload = Workload(self.up.api, marks, self._chance("churn"), lanes)
        self.checks = Checks(self.up, self.workload)
        self.watches = Watches(self.up.api, self._chance("watches"), options.watches)
        self.ground = Ground(self.up, self.workload, self._chance("faults"))
        self.starts: list[float] = []

    def _chance(self, name: str) -> random.Random:
        return random.Random(f"{self.options.seed} {name}")  # noqa: S311 - drawn again with the same seed

    # Noting.

    def say(self, text: str) -> None:
        sys.stderr.write(f"{time.monotonic() - self.began:7.1f} s  {text}\n")
        sys.stderr.flush()

    def note(self, invariant: str, faults: Iterable[str]) -> bool:
        """Count a check; note and print its breaches. Raises Broken after too many."""
        faults = list(faults)
        self.report.checked[invariant] = self.report.checked.get(invariant, 0) + 1
        if len(faults) > _MOST_SHOWN:
            faults = [*faults[:_MOST_SHOWN], f"and {len(faults) - _MOST_SHOWN} more of this kind"]
        for what in faults:
            at = time.monotonic() - self.began
            stamp = time.strftime("%Y-%m-%dT%H:%M:%S%z")
            self.report.breaches.append(
                Breach(invariant, self.phase, at, stamp, self.up.lives, self.step, what)
            )
            self.say(
                f"BREACH of: {invariant}: {what}"
                f" (seed {self.options.seed}, {self.phase}: {self.step}, {self.up.log})"
            )
            if len(self.report.breaches) == 1:
                self._keep_data()
        if len(self.report.breaches) > _MOST_BREACHES:
            raise Broken
        return not faults

    def _keep_data(self) -> None:
        """Copy the data directory as it was at the first breach."""
        with suppress(OSError, shutil.Error):
            shutil.copytree(
                self.up.data, self.logs / "data", symlinks=True, ignore=shutil.ignore_patterns("*.sock")
            )

    def note_all(self, found: Mapping[str, list[str]]) -> None:
        for invariant, faults in found.items():
            self.note(invariant, faults)

    @asynccontextmanager
    async def in_phase(self, name: str) -> AsyncIterator[dict[str, Any]]:
        self.phase, self.step = name, ""
        entry: dict[str, Any] = {"name": name, "began": time.monotonic() - self.began}
        self.report.phases.append(entry)
        self.say(f"--- {name}")
        breaches = len(self.report.breaches)
        yield entry
        entry["seconds"] = time.monotonic() - self.began - entry["began"]
        entry["breaches"] = len(self.report.breaches) - breaches
        entry["load"] = os.getloadavg()[0]

    # Steps that several phases share.

    async def start(self, *more: str) -> bool:
        """Start corelane; where that is refused, follow the remedy that it names."""
        for _ in range(3):
            try:
                self.starts.append(await self.up.start(*more))
            except Ended as ended:
                remedy = self._remedy(ended)
                if remedy is None:
                    self.note(STARTS, [f"{ended}: {ended.output[-1500:]}"])
                    await self.up.kill()
                    return False
                more = remedy
            else:
                self.note(STARTS, [])
                return True
        self.note(STARTS, ["the remedies that it named do not help"])
        return False

    def _remedy(self, ended: Ended) -> tuple[str, ...] | None:
        """Do what the message says; return further arguments of the next start, None without a remedy."""
        text = ended.output
        self.note(SAID, [f"traceback: {text[-1500:]}"] if "Traceback" in text else [])
        if ended.status is None:
            return None
        if match := re.search(r"--restore-backup (\S+)", text):
            return ("--restore-backup", match[1])
        if match := re.search(r"(/\S+?): .*move the file to another name", text):
            path = Path(match[1])
            path.rename(path.with_name(f"{path.name}.moved-{time.monotonic_ns()}"))
            return ()
        if match := re.search(r"(/\S+?): .*remove it", text):
            path = Path(match[1])
            shutil.rmtree(path) if path.is_dir() else path.unlink()
            return ()
        return None

    async def settle(self) -> None:
        """Wait until all orders are carried out, then compare all views."""
        self.note(ORDERS, await self.workload.settle(SETTLE_SECONDS))
        self.note_all(await self.checks.settled())
        self.note(WATCHES, await self.watches.disagreements())
        text = self.up.output
        self.note(SAID, [f"traceback in {self.up.log}: {_trace(text)}"] if "Traceback" in text else [])
        self._forgive()

    def _forgive(self) -> None:
        """Take what runs now as what has to go on, so that one breach is not noted again and again."""
        processes = self.workload.marks.processes()
        for pod in self.workload.live():
            if all(processes.get(key) for key in pod.keys):
                pod.main = {key: processes[key][0] for key in pod.keys}

    async def churn(self, seconds: float, pause: float) -> None:
        """Let pods come and go; the kernel is read once a second."""
        end, look = time.monotonic() + seconds, 0.0
        while time.monotonic() < end:
            if self.up.alive:
                await self.workload.churn()
            if time.monotonic() >= look:
                self.note_all(self.checks.kernel())
                look = time.monotonic() + 1.0
            await asyncio.sleep(min(pause, max(0.0, end - time.monotonic())))

    # Phases.

    async def run(self) -> Report:
        try:
            await self._run()
        except Broken:
            self.say("given up: too much is broken")
        finally:
            await self._end()
        return self.report

    async def _run(self) -> None:
        async with self.in_phase("start") as entry:
            if not await self.start():
                raise Broken
            await self.workload.start(self.options.pods)
            await self.watches.open()
            await self.settle()
            entry |= {"pods": len(self.workload.pods), "watches": len(self.watches.all)}
        async with self.in_phase("broken files") as entry:
            await self._broken_files(entry)
        async with self.in_phase("kills") as entry:
            await self._kills(entry)
        if self.options.churn:
            async with self.in_phase("quick churn") as entry:
                await self.churn(self.options.churn, 0.1)
                await self.settle()
                entry |= {**self.workload.orders, **self.up.figures()}
        async with self.in_phase("steady") as entry:
            await self._steady(entry)

    async def _broken_files(self, entry: dict[str, Any]) -> None:
        chosen = soak_faults.sample(self._chance("choice of faults"), self.options.faults, self.options.only)
        entry["faults"] = len(chosen)
        for number, fault in enumerate(chosen, 1):
            self.step = fault.name
            self.say(f"{number}/{len(chosen)} {fault.name}")
            breaches = len(self.report.breaches)
            await self._break(fault)
            found = [breach.what for breach in self.report.breaches[breaches:]]
            self.report.steps.append(
                {"fault": fault.name, "area": fault.area, "life": self.up.lives, "breaches": found}
            )

    async def _break(self, fault: Fault) -> None:
        """Strike, see what is done and said about it, and start again."""
        output = ""
        if fault.hot:
            with suppress(FileNotFoundError):
                fault.strike(self.ground)
            output = await self._watch_hot(fault)
        elif self.up.alive:
            await self.up.kill()
        self.note_all(self.checks.kernel())
        for pod in self.workload.of(*EXCLUSIVE) if fault.forgets else ():
            pod.pinned = False  # its class is lost, and with it the claim to exclusive CPUs
        before = self.work.with_name(f"{self.work.name}-before")
        if not fault.hot:
            soak_faults.copy(self.up.data, before)
            with suppress(FileNotFoundError):
                fault.strike(self.ground)
        if not await self.start():
            soak_faults.undo(before, self.up.data)
            if fault.hot or not await self.start():
                raise Broken
        shutil.rmtree(before, ignore_errors=True)
        if fault.area in ("database", "tree"):  # versions of a lost history are given again
            await self.watches.relist(self.watches.all)
        self.note_all(self.checks.kernel())
        if fault.forgets:
            await self._replace_lanes()
        await self.settle()
        if fault.area == "logs":
            await self._ask_for_logs()
        events = await self._events()
        if fault.says and fault.says not in output + self._all_output() + events:
            self.note(SAID, [f"{fault.says!r} is not in output and events"])
        self.note_all(self.checks.kernel())

    def _all_output(self) -> str:
        """Return the output of the present life and of the one before, which may have been refused."""
        logs = sorted(self.logs.glob("life-*.log"))[-2:]
        return "".join(path.read_text(errors="replace") for path in logs)

    async def _events(self) -> str:
        with suppress(NoAnswer):
            return json.dumps(
                await self.up.api.items(f"/api/v1/events?fieldSelector=involvedObject.name={NODE}")
            )
        return ""

    async def _watch_hot(self, fault: Fault) -> str:
        """Return the output of a corelane that a fault met while it ran."""
        if fault.stops:
            status = await self.up.ended(30.0)
            self.note(STOPS, [] if status == 1 else [f"exit status {status} after {fault.name}, expected 1"])
        else:
            await asyncio.sleep(1.5)
            self.note_all(self.checks.kernel())
            if fault.area == "logs":
                await self._ask_for_logs()
            self.note(STOPS, [] if self.up.alive else [f"corelane ended: {self.up.output[-1500:]}"])
        output = self.up.output
        self.note(SAID, [f"traceback in {self.up.log}: {_trace(output)}"] if "Traceback" in output else [])
        if self.up.alive:
            await self.up.kill()
        return output

    async def _ask_for_logs(self) -> None:
        """The API answers for every container: with its log, or with a status that has a message."""
        for pod in self.workload.live():
            for name in pod.containers:
                path = f"{pod.path}/log?container={name}&tailLines=3"
                try:
                    status, answer = await self.up.api.request("GET", path)
                except NoAnswer as error:
                    self.note(LOGS, [f"{pod.name}/{name}: {error}"])
                else:
                    is_status = isinstance(answer, dict) and bool(answer.get("message"))
                    fine = status == 200 or (is_status and status != 500)
                    self.note(LOGS, [] if fine else [f"{pod.name}/{name}: {status} {answer}"])

    async def _replace_lanes(self) -> None:
        """Without records and API, classes and labels are gone, too: order pods with exclusive CPUs anew."""
        for pod in self.workload.of(*EXCLUSIVE):
            await self.workload.delete(pod)
        self.note(ORDERS, await self.workload.settle(SETTLE_SECONDS))
        for _ in range(self.workload.lanes):
            await self.workload.create(self.workload.chance.choice(EXCLUSIVE))

    async def _kills(self, entry: dict[str, Any]) -> None:
        chance, kinds = self._chance("kills"), Counter[str]()
        for number in range(1, self.options.kills + 1):
            kind = chance.choices(("serving", "starting", "stopping"), (6, 3, 1))[0]
            kinds[kind] += 1
            self.step = f"kill {number} ({kind})"
            if kind == "starting":
                await self._kill_starting(chance)
            else:
                await self.churn(chance.uniform(0.0, 6.0), 0.2)
                if kind == "stopping":
                    self.up.process and self.up.process.send_signal(signal.SIGTERM)
                    await asyncio.sleep(chance.uniform(0.0, 1.0))
                await self.up.kill()
            self.note_all(self.checks.kernel())
            await asyncio.sleep(chance.choice((0.0, 0.0, 2.5)))
            if not await self.start():
                raise Broken
            self.note_all(self.checks.kernel())
            await self.settle()
            if number % 10 == 0:
                self.say(
                    f"{number} kills; {self.workload.orders};"
                    f" starts in {statistics.median(self.starts):.1f} s"
                )
        entry |= {"kills": dict(kinds), **self.workload.orders}

    async def _kill_starting(self, chance: random.Random) -> None:
        """Kill it twice: as it serves, and again before the next one is ready."""
        await self.churn(chance.uniform(0.0, 2.0), 0.1)
        await self.up.kill()
        self.note_all(self.checks.kernel())
        self.up.spawn()
        await asyncio.sleep(chance.uniform(0.0, 1.3 * statistics.median(self.starts)))
        await self.up.kill()

    async def _steady(self, entry: dict[str, Any]) -> None:
        """Churn slowly between idle times; memory is sampled throughout, from the present life's start."""
        sampler = asyncio.create_task(self._sample())
        end = time.monotonic() + self.options.steady
        shares, shims = [], []
        try:
            while True:
                self.step = "idle"
                share, of_shims = await self._idle()
                shares.append(share)
                shims.append(of_shims)
                if time.monotonic() + self.options.idle > end:
                    break
                self.step = "slow churn"
                await self.churn(min(4 * self.options.idle, end - time.monotonic() - self.options.idle), 3.0)
                await self.settle()
        finally:
            sampler.cancel()
        entry["idle_shares"] = shares
        self.report.figures |= {
            "idle_core_share": statistics.median(shares),
            "idle_core_share_of_shims": statistics.median(shims),
            **self._memory(),
        }

    async def _idle(self) -> tuple[float, float]:
        """Return the share of a core of corelane, and of all shims, while nothing is ordered."""
        await self.settle()
        await asyncio.sleep(min(15.0, self.options.idle / 2))
        own = kernel.shims(self.up.data)
        helpers = [pid for pid in own if pid != self.up.pid]
        begun, before, of_shims = (
            time.monotonic(),
            kernel.cpu_seconds(self.up.pid),
            sum(map(kernel.cpu_seconds, helpers)),
        )
        await asyncio.sleep(self.options.idle)
        seconds = time.monotonic() - begun
        share = (kernel.cpu_seconds(self.up.pid) - before) / seconds
        shims = (sum(map(kernel.cpu_seconds, helpers)) - of_shims) / seconds
        self.note_all(self.checks.kernel())
        self.say(
            f"idle: corelane {share:.2%} of a core, {len(helpers)} shims {shims:.2%}; {self.up.figures()}"
        )
        return share, shims

    async def _sample(self) -> None:
        while True:
            if self.up.alive:
                self.report.samples.append({"at": time.monotonic() - self.began, **self.up.figures()})
            await asyncio.sleep(10)

    def _memory(self) -> dict[str, float]:
        """Return the median memory of the last half hour, and the largest deviation of a minute's median."""
        last = self.report.samples[-1]["at"] if self.report.samples else 0.0
        samples = [one for one in self.report.samples if one["at"] > last - 1800.0]
        if not samples:
            return {}
        middle = statistics.median(one["rss_mb"] for one in samples)
        minutes: dict[int, list[float]] = {}
        for one in samples:
            minutes.setdefault(int((last - one["at"]) // 60), []).append(one["rss_mb"])
        medians = [statistics.median(values) for values in minutes.values()]
        return {
            "memory_mb": middle,
            "memory_deviation": max(abs(one / middle - 1) for one in medians),
            "memory_seconds": last - samples[0]["at"],
            "descriptors_growth": samples[-1]["descriptors"] - samples[0]["descriptors"],
            "threads_growth": samples[-1]["threads"] - samples[0]["threads"],
        }

    async def _end(self) -> None:
        async with self.in_phase("end"):
            await self._down()

    async def _down(self) -> None:
        """`corelane down --purge` ends everything, whatever state it is in."""
        self.step = "corelane down --purge"
        self.report.watches = self.watches.counts()
        await self.watches.close()
        await self.up.api.close()
        command = [sys.executable, "-m", "corelane", "down", "--data-dir", str(self.up.data), "--purge"]
        done = await asyncio.to_thread(
            subprocess.run,
            [*command, "--grace-seconds", "2", "-o", "json"],
            capture_output=True,
            text=True,
            timeout=120,
        )
        with suppress(Broken):
            self.note(
                CLEAN,
                []
                if done.returncode == 0
                else [f"exit status {done.returncode}: {done.stdout} {done.stderr}"],
            )
            deadline = time.monotonic() + 15
            while (left := self.checks.nothing(self.work)) and time.monotonic() < deadline:  # noqa: ASYNC110
                await asyncio.sleep(0.5)
            self.note(CLEAN, left)
        if self.up.alive:
            await self.up.kill()
        if self.starts:
            self.report.figures |= {
                "start_median_s": statistics.median(self.starts),
                "start_max_s": max(self.starts),
            }


def _trace(text: str) -> str:
    return text[text.index("Traceback") :][:3000]
