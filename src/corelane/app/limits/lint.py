"""What `corelane limits lint` does: reads files, lints them together, and prints the report."""

from __future__ import annotations

import json
import os
import posixpath
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

from corelane import __version__, input_files
from corelane.limits.lint.findings import Finding
from corelane.limits.lint.linter import FileFault, LintReport, lint
from corelane.limits.lint.policy import Policy, Severity, from_mapping
from corelane.limits.lint.rules import RULES
from corelane.settings import EncodingError, SettingsError, load_yaml, utf8_text
from corelane.view.limits import findings as view

_STDIN: Final = "-"
_LEVELS: Final = {"note": Severity.INFO, "warning": Severity.WARNING, "error": Severity.ERROR}
Key: TypeAlias = tuple[str, str, str]
"""Rule, file, and object with container: lines move, these do not."""
Baseline: TypeAlias = dict[Key, list[Severity]]
"""Severities of the findings."""


class LintError(ValueError):
    """Input that cannot be linted; the message names it, and what to do."""


def load(path: Path) -> Baseline:
    """Read a report that `-o json` or `-o sarif` wrote. Raises LintError."""
    try:
        tree = json.loads(input_files.read(path, input_files.OBJECTS_BYTES))
        baseline: Baseline = {}
        for run in tree.get("runs", ()):
            for result in run["results"]:
                if not result.get("suppressions"):
                    rule, _, rest = result["partialFingerprints"]["object/v1"].partition(":")
                    file, _, name = rest.rpartition(":")
                    baseline.setdefault(_key(rule, file, name), []).append(_LEVELS[result["level"]])
        for finding in () if "runs" in tree else tree["findings"]:
            name = "/".join(
                filter(None, (finding[part] for part in ("namespace", "kind", "name", "container")))
            )
            key, severity = (
                _key(finding["rule"], finding["file"], name),
                Severity[finding["severity"].upper()],
            )
            baseline.setdefault(key, []).append(severity)
    except OSError as error:
        raise LintError(f"--baseline {path}: {error.strerror or error}") from None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        what = "is not a report of corelane limits lint: write it with -o json or -o sarif"
        raise LintError(f"--baseline {path}: {what}") from None
    return baseline


def _key(rule: str, file: str, name: str) -> Key:
    return rule, posixpath.normpath(file), name


def without(report: LintReport, baseline: Baseline) -> LintReport:
    """The report without the findings of a baseline; one that has become more severe is new.

    A file of the baseline that is gone has been renamed, or was linted by another path: what is left of its
    findings is looked for in the other files.
    """
    left = {key: sorted(severities) for key, severities in baseline.items()}
    new = [one for one in report.findings if not _drop(left, _key_of(one), one.severity)]
    gone = {file for _, file, _ in left if file != _STDIN and not Path(file).exists()}
    moved: dict[Key, list[Severity]] = {}
    for (rule, file, name), severities in left.items():
        if file in gone:
            moved.setdefault((rule, "", name), []).extend(severities)
    new = [one for one in new if not _drop(moved, (one.rule, "", one.qualified), one.severity)]
    return replace(report, findings=tuple(new), known=len(report.findings) - len(new))


def _drop(left: dict[Key, list[Severity]], key: Key, severity: Severity) -> bool:
    """Whether a baseline has a finding as severe; each of its findings counts once."""
    severities = left.get(key, [])
    match = min((each for each in severities if each >= severity), default=None)
    if match is not None:
        severities.remove(match)
    return match is not None


def _key_of(one: Finding) -> Key:
    return _key(one.rule, one.file, one.qualified)


_SUFFIXES: Final = frozenset({".yaml", ".yml", ".json"})
_ARCHIVES: Final = (".tgz", ".tar.gz")
_SKIPPED: Final = frozenset({"node_modules", "__pycache__"})
_LARGEST: Final = 64 << 20
Say = Callable[[str], None]


@dataclass(slots=True)
class Sources:
    """Texts to lint by name; what could not be read, and what was left out on purpose."""

    texts: dict[str, str] = field(default_factory=dict)
    faults: list[FileFault] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    charts: list[Path] = field(default_factory=list)
    """Charts among the faults, with the `helm template` line to run."""


def main(
    names: Iterable[str],
    settings: Policy,
    form: str,
    *,
    ignored: bool,
    say: Say,
    complain: Say,
    baseline: Path | None = None,
    allow_empty: bool = False,
) -> int:
    """Lint and print. 0 is clean, 1 a finding at or above the policy's `fail_on`, 2 unusable input.

    Findings of the report `baseline` do not count. Input without any object is unusable unless `allow_empty`.
    Raises LintError.
    """
    before = load(baseline) if baseline else {}
    sources = gather(names)
    found = lint(sources.texts, settings)
    faults = (*sources.faults, *(one for one in found.faults if not _of_chart(one, sources.charts)))
    report = without(replace(found, faults=faults), before)
    _print(report, sources.notes, form, ignored=ignored, say=say, complain=complain)
    for fault in report.faults:
        complain(f"Error: {fault}")
    # An empty pipe is not a clean manifest.
    objects = report.workloads + sum(count for kind, count in report.skipped.items() if kind)
    content = objects or report.findings or report.known or report.ignored or report.faults
    if not content and not allow_empty:
        complain("Error: no Kubernetes object in the input: give manifests, or pipe `helm template` into `-`")
        return 2
    if report.faults:
        return 2
    return int(report.at_least(settings.fail_on))


def _of_chart(fault: FileFault, charts: Iterable[Path]) -> bool:
    """Whether it is a template that a chart reads from its other files: its chart is named already."""
    return fault.helm and any(chart in Path(fault.file).parents for chart in charts)


def _print(
    report: LintReport, notes: list[str], form: str, *, ignored: bool, say: Say, complain: Say
) -> None:
    if form == "json":
        say(json.dumps(view.plain(report, notes), indent=2))
    elif form == "sarif":
        say(json.dumps(view.sarif(report, RULES, __version__), indent=2))
    else:
        for line in view.lines(report, ignored=ignored):
            say(line)
        complain(view.summary(report))
    for note in notes:
        complain(f"note: {note}")


def policy(
    path: Path | None, flags: Mapping[str, Any], disabled: Iterable[str], base: Policy | None = None
) -> Policy:
    """The policy of a file over `base` (the default one), changed by the command line. Raises LintError."""
    ids, combined = [rule.id for rule in RULES], base or Policy()
    try:
        tree = load_yaml(input_files.read(path)) if path else None
        combined = from_mapping(tree if tree is not None else {}, ids, combined)
    except SettingsError as error:
        raise LintError(f"{path}: {error}") from None
    try:
        given = {key: value for key, value in flags.items() if value is not None}
        combined = from_mapping(given, ids, combined)
        off = from_mapping({"severity": dict.fromkeys(disabled, "off")}, ids).severities
    except SettingsError as error:
        raise LintError(f"policy: {error}") from None
    return replace(combined, severities={**combined.severities, **off})


def gather(names: Iterable[str]) -> Sources:
    """Read files, `-` for standard input, and the manifests below directories."""
    sources = Sources()
    for name in dict.fromkeys(names):
        if name == "-":
            _take(sources, name, lambda: sys.stdin.buffer.read(_LARGEST + 1))
        elif Path(name).is_dir():
            for path in _below(Path(name), sources):
                _take(sources, str(path), partial(_read, path, regular=True))
        elif chart := _chart_of(Path(name).parent):
            sources.faults.append(_unrendered(name, chart))
        elif name.endswith(_ARCHIVES):
            sources.faults.append(_unrendered(name, Path(name), "an archive of a Helm chart"))
        else:
            _take(sources, name, partial(_read, Path(name)))
    return sources


def _read(path: Path, *, regular: bool = False) -> bytes:
    """Read a file. `regular`: a pipe could keep a directory waiting."""
    if regular and path.exists() and not path.is_file():
        raise ValueError("is not a regular file; give its name to read it")
    return input_files.read(path, _LARGEST)


def _take(sources: Sources, name: str, read: Callable[[], bytes]) -> None:
    try:
        content = read()
        if len(content) > _LARGEST:
            raise ValueError(f"is larger than {_LARGEST >> 20} MiB, which no manifest is")
        sources.texts[name] = utf8_text(content)
    except EncodingError as error:
        sources.faults.append(FileFault(name, error.line, error.column, str(error)))
    except OSError as error:
        sources.faults.append(FileFault(name, 0, 0, error.strerror or str(error)))
    except ValueError as error:
        sources.faults.append(FileFault(name, 0, 0, str(error)))


def _below(top: Path, sources: Sources) -> Iterator[Path]:
    """The manifests below a directory, in order. A chart's templates are no manifests, so they are faults."""
    if chart := _chart_of(top):
        sources.faults.append(_unrendered(str(top), chart))
        return
    for where, directories, files in os.walk(top):
        here = Path(where)
        directories[:] = sorted(one for one in directories if one[0] != "." and one not in _SKIPPED)
        if "Chart.yaml" in files:
            parts = [one for one in ("templates", "charts") if one in directories]
            directories[:] = [one for one in directories if one != "templates"]
            # Helm renders a subchart with its chart, at `top` or below.
            above = here.parent
            is_subchart = above.name == "charts" and (above.parent / "Chart.yaml").is_file()
            if parts and not (is_subchart and top not in (above, here)):
                sources.faults.append(_unrendered(str(here / parts[0]), here))
                sources.charts.append(here)
        yield from (here / name for name in sorted(files) if Path(name).suffix in _SUFFIXES)


def _chart_of(folder: Path) -> Path | None:
    """The chart whose templates a directory holds; None for any other directory."""
    above = (folder.absolute(), *folder.absolute().parents)
    charts = (each.parent for each in above if each.name == "templates")
    found = next((chart for chart in charts if (chart / "Chart.yaml").is_file()), None)
    return Path(os.path.relpath(found)) if found and not folder.is_absolute() else found


def _unrendered(name: str, chart: Path, what: str = "a Helm chart's templates") -> FileFault:
    line = f"helm template {shlex.quote(str(chart))} | corelane limits lint -"
    return FileFault(name, 0, 0, f"{what}, not linted; render the chart: {line}")


def rules(say: Say) -> None:
    """Print the table of rules."""
    for line in view.listing(RULES):
        say(line)


def explain(name: str, say: Say) -> None:
    """Print the explanation of a rule. Raises LintError where there is no such rule."""
    found = next((rule for rule in RULES if rule.id == name), None)
    if found is None:
        raise LintError(
            f"--explain {name}: there is no such rule; there are {', '.join(r.id for r in RULES)}"
        )
    say(view.explanation(found))
