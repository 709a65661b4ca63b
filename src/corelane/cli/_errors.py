"""One line for every mistake of a user's, and no traceback."""

from __future__ import annotations

import click


class Fault(click.ClickException):
    """Bad input or a condition that the user can mend: one line on stderr, exit status 2."""

    exit_code = 2


class Command(click.Command):
    """A command whose own exceptions, and the system's, end as one line."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:
            if is_for_users(error):
                raise Fault(str(error)) from error
            raise


def is_for_users(error: Exception) -> bool:
    """Whether an exception's text was written for a person: corelane's own, and the system's."""
    if isinstance(error, ImportError):
        return error.name in _EXTRAS
    return isinstance(error, OSError) or type(error).__module__.startswith("corelane.")


_EXTRAS = {"aiohttp", "grpc", "lightkube", "numpy", "prometheus_client", "structlog"}


class Group(click.Group):
    """A group of such commands, listed in the order in which they were added."""

    command_class = Command

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except ImportError as error:
            if error.name in _EXTRAS:
                message = f"this needs the package {error.name}: pip install 'corelane[all]'"
                raise Fault(message) from error
            raise
