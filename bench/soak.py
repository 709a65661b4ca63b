"""`corelane up` for an hour as life treats it: churn, kill -9 at random moments, broken files and idle times.

`make soak` starts 50 pods and 50 watches of every kind. Then files are broken one by one, corelane is killed
60 times while pods come and go, and half an hour of slow churn and idle times follows. At every step the
kernel is read: no pod may be lost, restarted or ended, and no CPU may have two owners; API, ledger, watches
and files have to agree with it. At the end nothing may be left after `corelane down --purge`.

It prints its seed, and takes it again with --seed: the same steps are drawn, at moments that differ. Figures
are in build/bench/soak.json, everything else in build/bench/soak-report.json: every phase and step, how often
each invariant was checked, and every breach with its moment. After a breach the logs stay in
build/bench/soak-logs.
"""

# ruff: noqa: T201
import argparse
import asyncio
import json
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import report
from report import ROOT, Row
from soak_phases import Options, Report, Soak

OUT = ROOT / "build" / "bench"
HALF_HOUR = 1700.0


def options() -> Options:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    default = Options(seed=0)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6))
    parser.add_argument("--pods", type=int, default=default.pods)
    parser.add_argument("--watches", type=int, default=default.watches)
    parser.add_argument(
        "--kills", type=int, default=default.kills, help="kill -9 of corelane while pods come and go"
    )
    parser.add_argument(
        "--faults", type=int, default=default.faults, help="how many kinds of broken files (most: all)"
    )
    parser.add_argument(
        "--only", default="", help="only broken files with this text in area or name: `record`, `ledger`"
    )
    parser.add_argument(
        "--churn", type=float, default=110.0, help="seconds of quick churn before the steady time"
    )
    parser.add_argument(
        "--steady", type=float, default=default.steady, help="seconds without kills at the end"
    )
    parser.add_argument("--idle", type=float, default=default.idle, help="seconds of each idle time in them")
    parser.add_argument("--cgroups", choices=("auto", "off"), default=default.cgroups)
    parser.add_argument(
        "--other-instances",
        choices=("block", "ignore"),
        default=default.other_instances,
        help="ignore: beside other instances on this machine, whose containers may use any CPU",
    )
    return Options(**vars(parser.parse_args()))


def rows(found: Report) -> list[Row]:
    """Return the figures; those of memory count after half an hour."""
    figures, checked = found.figures, found.checked
    breaches = {name: sum(one.invariant == name for one in found.breaches) for name in checked}
    result = [Row(f"breaches: {name} ({checked[name]} checks)", breaches[name], "", 0) for name in checked]
    if "idle_core_share" in figures:
        result.append(Row("idle, of a core", figures["idle_core_share"] * 100, "%", 1.0))
        result.append(Row("idle, all shims, of a core", figures["idle_core_share_of_shims"] * 100, "%", None))
    if "memory_mb" in figures:
        long_enough = figures["memory_seconds"] >= HALF_HOUR
        seconds = f"{figures['memory_seconds']:.0f} s"
        result.append(Row("memory, median", figures["memory_mb"], "MB", None))
        target = 5.0 if long_enough else None
        result.append(Row(f"memory, deviation in {seconds}", figures["memory_deviation"] * 100, "%", target))
        result.append(Row(f"growth of open files in {seconds}", figures["descriptors_growth"], "", None))
    if "start_median_s" in figures:
        result.append(Row("start, median", figures["start_median_s"], "s", None))
        result.append(Row("start, slowest", figures["start_max_s"], "s", None))
    return result


def main() -> int:
    """Return 0 if every invariant held and every target was met, else 1."""
    chosen = options()
    print(
        f"seed {chosen.seed}: {' '.join(sys.argv)} (again: add --seed {chosen.seed})",
        file=sys.stderr,
        flush=True,
    )
    logs = OUT / "soak-logs"
    shutil.rmtree(logs, ignore_errors=True)
    logs.mkdir(parents=True)
    work = Path(tempfile.mkdtemp(prefix="corelane-soak-"))
    soak = Soak(chosen, work, logs)
    for number in (signal.SIGINT, signal.SIGTERM):  # also where a shell's & had SIGINT ignored
        signal.signal(number, signal.default_int_handler)
    try:
        found = asyncio.run(soak.run())
    finally:
        (OUT / "soak-report.json").write_text(json.dumps(soak.report.plain(), indent=1) + "\n")
        _clear(work)
    result = rows(found)
    report.show(result, f"seed {chosen.seed}, {len(found.steps)} broken files, {chosen.kills} kills")
    report.keep("soak", result)
    for breach in found.breaches:
        print(f"{breach.time} {breach.phase}, {breach.step}, life {breach.life}: {breach.what}")
    if found.breaches:
        print(f"seed {chosen.seed}; logs in {logs.relative_to(ROOT)}")
        return 1
    shutil.rmtree(logs)
    return 0 if all(row.met() for row in result) else 1


def _clear(work: Path) -> None:
    """End what a soak that failed left, so that nothing of it is in the way of what comes next."""
    shutil.rmtree(work.with_name(f"{work.name}-before"), ignore_errors=True)
    if work.exists():
        command = [sys.executable, "-m", "corelane", "down", "--data-dir", str(work / "data"), "--purge"]
        subprocess.run([*command, "--grace-seconds", "0"], capture_output=True, check=False, timeout=120)
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
