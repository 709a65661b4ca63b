"""Forms of options that several commands share, and groups of options."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)
PATH: Final = click.Path(readable=False, path_type=Path)
"""A file or directory whose faults the application reports, in one line."""


class _Directory(click.Path):
    """A directory that may be missing; the application reports what it cannot do with it."""

    def __init__(self) -> None:
        super().__init__(file_okay=False, readable=False, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("'' is not a directory", param, ctx)
        return super().convert(value, param, ctx)


class Seconds(click.FloatRange):
    """A finite number of seconds: no bound excludes NaN."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not a number", param, ctx)
        return number


DIRECTORY: Final = _Directory()
_F = TypeVar("_F", bound=Callable[..., Any])


def text(flag: str, metavar: str, help_text: str) -> Callable[[_F], _F]:
    """Return an option with a text as its value."""
    return click.option(flag, metavar=metavar, help=help_text)


def many(flag: str, metavar: str, help_text: str, name: str | None = None) -> Callable[[_F], _F]:
    """Return an option that may be repeated; its values are a tuple of texts."""
    names = (flag, name) if name else (flag,)
    return click.option(*names, metavar=metavar, multiple=True, help=f"{help_text}; may be repeated.")


def file(flag: str, help_text: str, *names: str) -> Callable[[_F], _F]:
    """Return an option with the path of an existing file."""
    return click.option(flag, *names, type=FILE, help=help_text)


def choice(flag: str, words: str, help_text: str, default: str | None = None) -> Callable[[_F], _F]:
    """Return an option with one of some words, given here with spaces between."""
    kind = click.Choice(words.split())
    return click.option(flag, type=kind, default=default, show_default=default is not None, help=help_text)


def output(words: str) -> Callable[[_F], _F]:
    """Return option `-o` with these formats; the first is the default."""
    formats = words.split()
    kind = click.Choice(formats)
    return click.option("-o", "--output", type=kind, default=formats[0], show_default=True)


reconcile_seconds = click.option(
    "--reconcile-seconds",
    type=Seconds(1, 3600),
    metavar="SECONDS",
    help="Time between two comparisons of all containers with the kernel.  [default: 10]",
)
machine = text(
    "--machine",
    "SOURCE",
    "The machine: a spec such as 'socket:2 core:8 smt:2', a snapshot, lscpu output, or hwloc XML.  "
    "[default: this one]",
)


def together(*options: Callable[[_F], _F]) -> Callable[[_F], _F]:
    """Return several options as one decorator, listed in this order."""
    return lambda command: functools.reduce(lambda made, option: option(made), reversed(options), command)


def gathered(name: str, build: Callable[..., Any], *options: Callable[[_F], _F]) -> Callable[[_F], _F]:
    """Add options to a command, which receives `build` of their values as its argument `name`."""

    def decorate(command: _F) -> _F:
        @functools.wraps(command)
        def gathering(**values: Any) -> Any:
            own = {key: values.pop(key) for key in names}
            return command(**values, **{name: build(**own)})

        before = len(_parameters(gathering))
        for option in reversed(options):
            option(gathering)
        names = [parameter.name for parameter in _parameters(gathering)[before:]]
        return gathering  # type: ignore[return-value]

    return decorate


def _parameters(command: Callable[..., Any]) -> list[click.Parameter]:
    return getattr(command, "__click_params__", [])
