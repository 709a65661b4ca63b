"""Which plugin raised an error, and what is said of it."""

from pathlib import Path
from traceback import walk_tb
from types import CodeType

from corelane.scheduler.framework.checked import WrongAnswer
from corelane.scheduler.framework.plugin import StateError
from corelane.scheduler.framework.profile import Profile


def raised_by(error: Exception, profile: Profile) -> str:
    """Return the name of the innermost plugin in whose methods an error was raised; "" without any."""
    if isinstance(error, WrongAnswer | StateError):
        return error.plugin
    plugins, found = {id(plugin): plugin.name for plugin in profile.plugins}, ""
    for frame, _ in walk_tb(error.__traceback__):
        found = plugins.get(id(frame.f_locals.get(_first_argument(frame.f_code))), found)
    return found


def _first_argument(code: CodeType) -> str:
    return code.co_varnames[0] if code.co_argcount else ""


def described(plugin: str, error: Exception) -> str:
    """Return what a plugin raised, and where; of a wrong answer, what it was."""
    if isinstance(error, WrongAnswer | StateError):
        return " ".join(f"plugin {plugin} failed: {error}".split())
    *_, (frame, line) = walk_tb(error.__traceback__)
    path = Path(frame.f_code.co_filename)
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return f"plugin {plugin} failed: {text} ({path.parent.name}/{path.name}, line {line})"
