"""User errors as one line on stderr, without a traceback."""

from __future__ import annotations

import errno
import signal

import click

from corelane.interrupts import raise_on_interrupt

_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})


class Fault(click.ClickException):
    """Invalid input or a condition that the user can fix: one line on stderr, exit status 2."""

    exit_code = 2


class Command(click.Command):
    """A command that reports exceptions of corelane and of the system, and invalid values, as one line."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.MissingParameter:
            raise
        except click.BadParameter as error:
            raise Fault(error.format_message()) from error

    def invoke(self, ctx: click.Context) -> object:
        raise_on_interrupt()
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise click.exceptions.Exit(128 + signal.SIGINT) from None
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise
        except Exception as error:
            text = text_for_users(error)
            if text is None:
                raise
            raise Fault(text) from error


def text_for_users(error: Exception) -> str | None:
    """Return the line to print for an expected error; None for a bug of corelane."""
    if isinstance(error, ImportError):
        package = (error.name or "").partition(".")[0]
        remedy = f"this command requires {package}, an optional dependency: pip install 'corelane[all]'"
        return remedy if package in _EXTRAS else None
    if isinstance(error, OSError) and error.errno in _NO_SPACE and error.filename:
        return f"cannot write {error.filename}: {error.strerror}; free space on its file system"
    if type(error).__module__.startswith("corelane."):
        return str(error)
    return _system_error(error) if isinstance(error, OSError) else None


def _system_error(error: OSError) -> str:
    """Return file and cause; Python puts an error's number first."""
    if error.strerror is None or error.errno is None:
        return str(error)
    names = [str(name) for name in (error.filename, error.filename2) if name is not None]
    return f"{' -> '.join(names)}: {error.strerror}" if names else error.strerror


_EXTRAS = {
    "aiohttp",
    "cryptography",
    "google",  # protobuf
    "h2",
    "structlog",
}


class Group(click.Group):
    """A group of `Command`s, listed in the order in which they were added."""

    command_class = Command

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)
