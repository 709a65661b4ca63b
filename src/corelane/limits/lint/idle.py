"""Containers that only wait, or end soon: they hardly lack CPU time or leak memory, whatever they request."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import Final

from corelane.limits.lint.located import Located, at, command_line, items, text

_ENTRYPOINT: Final = re.compile(r"(?:docker-)?entrypoint(?:\.sh)?")
_HANDS_OVER: Final = re.compile(r"(?s)(.*?)\bexec\s+(?:(\S+)\s+)?\"?\$(?:@|\{@\})\"?\s*")
_SETUP: Final = re.compile(
    r"(?:else\s+)?(?:if\s+)?(?:!\s+)?(?:\[[^`()]*\]|then|fi"
    r"|\w+=(?:\"?\$\((?:pwd|hostname|sysctl -n [\w./-]+)\)\"?|\"[^\"`()]*\"|'[^']*'|[^\s`()]*)"
    r"|(?:/\S*/)?(?:mkdir|cd|ln|cp|mv|rm|touch|install|chmod|chown|export|umask|ulimit|sysctl"
    r"|cat|sed|date|hostname|uname|whoami|id|pwd|ls|echo|printf)(?![\w.-])[^`|<()]*)"
)
"""Commands that take no time and little memory: before a script hands over, or the whole of it."""
_NOTHING: Final = re.compile(
    r"|(?:/\S*/)?(?:true|false)|:|(?:/\S*/)?(?:echo|printf|set|exit)(?![\w.-])[^`|<>()]*"
)
_CHECK: Final = re.compile(
    r"(?:(?:until|while|if)\s+)(?:!\s+)?(?:\[[^`|<()]*\]|(?:\S*/)?"
    r"(?:curl|dig|getent|host|mysqladmin|nc|ncat|nslookup|pg_isready|ping|stat|test|wget)(?![\w.-])[^`|<()]*"
    r"(?:\|\s*(?:grep|head|tail|wc|cut|tr|jq)(?![\w.-])[^`|<()]*)*)"
)
"""The condition of a loop, or in one, that asks whether another service or a file is there."""
_LOOPING: Final = re.compile(
    r"do|then|done|fi|else|break|continue|for\s+\w+\s+in\s[^`|<()]*|while\s+(?:true|:|\[[^`|<()]*\])|\w+=[\w.]*"
)
_LISTED: Final = re.compile(r"\$\(\([^`()]*\)\)|\$\((?:cat|date|hostname|seq)(?![\w.-])[^`|<()]*\)")
"""Numbers and names that a script computes."""
_SILENCED: Final = re.compile(r"&>\s*/dev/null|\d?>\s*/dev/null|\d?>&\d")
_COMMENTS: Final = re.compile(r"^[ \t]*#.*$", re.MULTILINE)
_LOOP: Final = re.compile(r"\b(?:while|until|for|do)\b")
_PAUSE: Final = re.compile(r"(?:^|/)pause(?:-[a-z0-9]+)?(?:[:@][^/]*)?$")
_AGNHOST: Final = re.compile(r"(?:^|/)agnhost(?:[:@][^/]*)?$")
"""Kubernetes' image for tests, whose first argument names what it does."""
_SLEEP_IMAGE: Final = re.compile(r"(?:^|/)sleep(?:[:@][^/]*)?$")
_DURATION: Final = re.compile(r"(?:\d+(?:\.\d+)?[smhd]?|infinity|\$[\w{}()]+)")
_INITS: Final = frozenset({"tini", "dumb-init"})
_SHELLS: Final = frozenset({"sh", "bash", "ash", "dash"})
_SCRIPT_OPTION: Final = re.compile(r"-[a-z]*c")
_ENDS: Final = re.compile(r"&&|\|\||[;&\n]")
_KEYWORDS: Final = re.compile(r"^(?:(?:do|then|exec|wait)\s+)+")
_SLEEP: Final = re.compile(r"(?:\S*/)?(?:sleep\s+[\w.${}]+|tail\s+-[fF]\s+/dev/null)")
_NO_WORK: Final = re.compile(
    r"|true|:|done|wait|while\s+(?:true|:)|(?:echo|trap|set|exit)(?![\w.-])[^`|<>()]*"
)
_TIMEOUT: Final = re.compile(
    r"(?:\S*/)?timeout\s+(?:(?:-[ks]\s+\S+|-[kst]\S*|--\S+|-[fpv])\s+)*([0-9]{1,9}(?:\.[0-9]{1,9})?)([smhd]?)\s"
)
"""With options in front: how long, and the signal."""
_UNITS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
SOON_S: Final = 600
"""A container that ends within this time hardly leaks."""
_PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")
_LOOKS: Final = re.compile(r"(?:/\S*/)?(?:cat|test|stat|ls|true)(?: [\w./!-]+)*")
"""Commands of probes that look at a file."""


def only_waits(node: Located) -> bool:
    """Whether a container does nothing but wait: the pause image, or a command of sleeps alone."""
    if _is_asked(node):
        return False
    command = _unwrapped(command_line(node))
    if not items(node, "command") and _SLEEP_IMAGE.search(text(node, "image")):
        return all(_DURATION.fullmatch(word) for word in command)
    if command == ["pause"] and _AGNHOST.search(text(node, "image")):
        return True
    if not command:
        return _PAUSE.search(text(node, "image")) is not None
    script = _script(command) or " ".join(command)
    steps, once = _steps(script), _LOOP.search(script) is None
    sleeps = [_SLEEP.fullmatch(step) is not None for step in steps]
    return any(sleeps) and all(
        sleep or _NO_WORK.fullmatch(step) or (once and _SETUP.fullmatch(step))
        for step, sleep in zip(steps, sleeps, strict=True)
    )


def ends_soon(node: Located) -> bool:
    """Whether coreutils' or busybox' `timeout` ends a container's command within ten minutes."""
    command = _unwrapped(command_line(node))
    match = _TIMEOUT.match(" ".join(command))
    seconds = float(match[1]) * _UNITS[match[2]] if match else 0.0
    # 0 is no time limit, as it is for the program.
    return (seconds or math.inf) <= SOON_S


def ends_at_once(node: Located) -> bool:
    """Whether a container's own command does nothing: `true`, or a script that only echoes."""
    return _is_script_of(node, lambda step: _NOTHING.fullmatch(step) is not None)


def only_prepares_files(node: Located) -> bool:
    """Whether a container only copies files, makes links or sets permissions, and then ends."""
    return _is_script_of(node, lambda step: bool(_NO_WORK.fullmatch(step) or _SETUP.fullmatch(step)))


def waits_for_another(node: Located) -> bool:
    """Whether a container's script only checks, with pauses, whether another service or a file is there."""
    command = _unwrapped(command_line(node))
    if command and _name(command[0]) == "timeout":  # what it ends: after its options and the duration
        words = range(2, len(command))
        ends = [end for end in words if _TIMEOUT.fullmatch(" ".join((*command[:end], "")))]
        command = command[max(ends, default=0) :]
    script = _LISTED.sub("0", _script(command)) if command and not _is_asked(node) else ""
    steps, needed = _steps(script), (_CHECK, _SLEEP)
    return (
        _LOOP.search(script) is not None
        and all(any(map(pattern.fullmatch, steps)) for pattern in needed)
        and all(any(each.fullmatch(step) for each in (*needed, _NO_WORK, _LOOPING)) for step in steps)
    )


def _is_asked(node: Located) -> bool:
    """Whether the kubelet has it work: by hooks, or by probes that do more than look at a file."""
    probes = [probe for key in _PROBES if (probe := at(node, key)) is not None]
    commands = (" ".join(text(word) for word in items(probe, "exec", "command")) for probe in probes)
    return at(node, "lifecycle") is not None or not all(map(_LOOKS.fullmatch, commands))


def _is_script_of(node: Located, fits: Callable[[str], bool]) -> bool:
    """Whether `command`, run once, has steps of one sort only. Arguments alone may be any program's."""
    if not items(node, "command") or _is_asked(node):
        return False
    command = _unwrapped(command_line(node))
    script = _script(command) or " ".join(command)
    return _LOOP.search(script) is None and all(map(fits, _steps(script)))


def _steps(script: str) -> list[str]:
    """The commands of a script, without comments and the keywords before them."""
    return [
        _KEYWORDS.sub("", step.strip()) for step in _ENDS.split(_SILENCED.sub("", _COMMENTS.sub("", script)))
    ]


def _unwrapped(command: Sequence[str]) -> Sequence[str]:
    """The command under init processes such as tini and entrypoints that run their arguments."""
    while command:
        if _name(command[0]) in _INITS:
            rest = command[1:]
            while rest and rest[0].startswith("-"):
                rest = rest[1:]
        elif _ENTRYPOINT.fullmatch(_name(command[0])):
            rest = command[1:]
        else:
            rest = _handed_over(command)
        if not rest:
            return command
        command = rest
    return command


def _handed_over(command: Sequence[str]) -> Sequence[str]:
    """The arguments that a shell's script runs in its own place at last; empty where it does not."""
    script = _script(command)
    match = _HANDS_OVER.fullmatch(script) if script else None
    if match is None or (match[2] and not _ENTRYPOINT.fullmatch(_name(match[2]))):
        return ()
    if not all(_NO_WORK.fullmatch(step) or _SETUP.fullmatch(step) for step in _steps(match[1])):
        return ()
    # The argument after the script is $0.
    return command[command.index(script) + 2 :]


def _script(command: Sequence[str]) -> str:
    """Return the script of a shell with -c; empty for other commands."""
    if _name(command[0]) not in _SHELLS:
        return ""
    options = list(takewhile(lambda word: word[:1] in "-+" and word != "--", command[1:]))
    rest = command[1 + len(options) :]
    if not rest or not any(_SCRIPT_OPTION.fullmatch(word) for word in options):
        return ""
    return rest[1] if rest[0] == "--" and len(rest) > 1 else rest[0]


def _name(path: str) -> str:
    return path.rpartition("/")[2]
