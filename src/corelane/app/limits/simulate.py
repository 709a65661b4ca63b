"""What `corelane limits simulate` prints: a built-in study or one's own scenario, with variants beside it."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from corelane import input_files
from corelane.limits.model import scenario_file, studies
from corelane.limits.model.scenario import run
from corelane.limits.model.scenario_file import ScenarioError
from corelane.limits.model.studies import Study, StudyCase, phase_spread
from corelane.settings import SettingsError, load_yaml
from corelane.view import tables
from corelane.view.limits import pages
from corelane.view.limits import simulation as view


def names() -> list[tuple[str, str]]:
    """The built-in studies and their titles."""
    return [(study.name, study.title) for study in studies.BUILTIN.values()]


def render(
    source: str,
    form: str,
    *,
    changes: Sequence[str] = (),
    seconds: float | None = None,
    seeds: int = 1,
    seed: int = 1,
) -> str:
    """Run a study and give it as text of a form. Raises ScenarioError, also for a variant that cannot be."""
    study = _with_variants(_study(source), changes)
    columns = [_run(case, seconds, range(seed, seed + seeds), form) for case in study.cases]
    notes = (view.spread_note(columns), *study.notes)
    match form:
        case "json":
            tree = {
                "scenario": study.name,
                "title": study.title,
                "cases": view.as_json(columns),
                "notes": list(study.notes),
            }
            return json.dumps(tree, indent=2, ensure_ascii=False) + "\n"
        case "svg":
            return view.timeline_svg(study.title, _panels(columns))
        case "html":
            return pages.simulation(study.title, columns, _panels(columns), notes)
    out = io.StringIO()
    tables.show(study.title, view.HEADINGS, view.rows(columns), tables.console(out))
    return out.getvalue() + "".join(f"{note}\n" for note in notes if note)


def _study(source: str) -> Study:
    if source in studies.BUILTIN:
        return studies.BUILTIN[source]
    path = Path(source)
    if not path.exists():
        known = ", ".join(studies.BUILTIN)
        raise ScenarioError(f"{source}: no such file, and none of the built-in scenarios: {known}")
    if path.is_dir():
        raise ScenarioError(f"{path}: a directory, not a scenario file; name one YAML file in it")
    try:
        scenario = scenario_file.read(load_yaml(input_files.read(path)))
    except (SettingsError, ScenarioError) as error:
        raise ScenarioError(f"{path}: {error}") from None
    return Study(scenario.name, scenario.title, (StudyCase("as it is", scenario),), scenario.notes)


def _with_variants(study: Study, changes: Sequence[str]) -> Study:
    """Every change is made to the last case that has a subject as the study has it: the one of interest."""
    if not changes:
        return study
    bases = [case for case in study.cases if case.scenario.subject]
    if not bases:
        raise ScenarioError(
            f"{study.name} has no single container to change; --variant needs another scenario"
        )
    base = next((case for case in reversed(bases) if case.published), bases[-1])
    try:
        cases = [StudyCase(f"{base.label}, {text}", studies.vary(base.scenario, text)) for text in changes]
    except ValueError as error:
        raise ScenarioError(str(error)) from None
    return Study(study.name, study.title, (base, *cases), study.notes)


def _run(case: StudyCase, seconds: float | None, seeds: range, form: str) -> view.StudyColumn:
    scenario = case.scenario
    if seconds is not None:
        scenario = replace(scenario, seconds=seconds)
    outcomes = []
    for seed in seeds:
        try:
            outcomes.append(run(scenario, seed, traced=form in _DRAWN))
        except ValueError as error:
            raise ScenarioError(f"{case.label}: {error}") from None
    spread = phase_spread(scenario, seeds[0]) if form != "svg" else None
    spread = spread and spread.including(outcomes)
    return view.StudyColumn(case.label, outcomes, case.published, spread)


def _panels(columns: Sequence[view.StudyColumn]) -> list[view.Panel]:
    return [
        view.Panel(column.label, column.outcomes[0].scenario.machine.cpus, timeline)
        for column in columns
        if (timeline := column.outcomes[0].timeline) is not None
    ]


_DRAWN = ("svg", "html")
"""Forms that show slices."""
