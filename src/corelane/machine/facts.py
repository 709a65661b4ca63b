"""Names and abilities of a machine's CPUs, beside where they lie: model, vendor, turbo, cache ways."""

from dataclasses import dataclass
from pathlib import Path

_ENOUGH = 8192
_TURBO = (
    ("sys/devices/system/cpu/intel_pstate/no_turbo", "0"),
    ("sys/devices/system/cpu/cpufreq/boost", "1"),
)
"""Files, and their content when cores may run faster than their base frequency."""


@dataclass(frozen=True, slots=True)
class CPUFacts:
    """Empty where the machine does not report a fact."""

    model: str = ""
    vendor: str = ""
    turbo: bool = False
    cache_ways: str = ""
    """The mask of L3 ways that a resctrl group may have, in hexadecimal."""


def read(root: Path = Path("/")) -> CPUFacts:
    """The facts of the machine whose /proc and /sys are under `root`; what cannot be read is left empty."""
    cpu = _first_cpu(_text(root / "proc/cpuinfo"))
    switches = [(text, on) for name, on in _TURBO if (text := _text(root / name).strip())]
    return CPUFacts(
        model=cpu.get("model name", ""),
        vendor=cpu.get("vendor_id", cpu.get("CPU implementer", "")),
        turbo=bool(switches) and switches[0][0] == switches[0][1],
        cache_ways=_text(root / "sys/fs/resctrl/info/L3/cbm_mask").strip(),
    )


def _first_cpu(text: str) -> dict[str, str]:
    lines = (line.partition(":") for line in text.split("\n\n")[0].splitlines())
    return {name.strip(): value.strip() for name, _, value in lines}


def _text(path: Path) -> str:
    """The beginning of a file, which is all that is needed of a cpuinfo of hundreds of CPUs."""
    try:
        with path.open(errors="replace") as file:
            return file.read(_ENOUGH)
    except OSError:
        return ""
