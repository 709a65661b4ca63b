"""The daemons' log on stderr: lines for people on a terminal, else JSON.

structlog is loaded without the libraries that it uses only to colour a terminal: structlog.dev imports rich
and better_exceptions where they are installed, 3 MB of memory in every daemon for a renderer that none uses.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Final, Literal

_UNUSED: Final = ("rich", "better_exceptions")


@contextmanager
def _hidden(*names: str) -> Iterator[None]:
    """Let imports of these packages fail meanwhile."""
    before = {name: sys.modules.get(name) for name in names}
    sys.modules.update(dict.fromkeys(names))  # type: ignore[arg-type]  # None: not importable
    try:
        yield
    finally:
        for name, module in before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module


with _hidden(*_UNUSED):
    import structlog

get_logger: Final = structlog.get_logger
Format = Literal["auto", "text", "json"]
AS_JSON: Final[dict[Format, bool | None]] = {"auto": None, "text": False, "json": True}
_HIDDEN: Final = ("timestamp", "level", "event", "pod", "node", "identity", "logger", "exception")
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def configure(
    level: int = logging.INFO, *, as_json: bool | None = None, handler: logging.Handler | None = None
) -> None:
    """Configure the log, once, from the entry point. `as_json` None: JSON if stderr is not a terminal.

    `handler` None: stderr.
    """
    structured = not sys.stderr.isatty() if as_json is None else as_json
    shared: list[structlog.typing.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    renderer: structlog.typing.Processor = structlog.processors.JSONRenderer() if structured else plain
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    handler = handler or logging.StreamHandler()
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for chatty in ("aiohttp", "asyncio"):
        logging.getLogger(chatty).setLevel(logging.WARNING)


def plain(_: object, __: str, event: MutableMapping[str, Any]) -> str:
    """Return a line for people: local time, level from warning up, node, pod, event, other values.

    Control characters are escaped: names, commands and annotations are others' words, and could forge lines.
    """
    stamp = event.get("timestamp")
    at = datetime.fromisoformat(stamp) if stamp else datetime.now().astimezone()
    level = str(event.get("level", "info"))
    subject = [str(event[key]) for key in ("node", "pod") if event.get(key)]
    values = []
    for key, value in event.items():
        if key in _HIDDEN or not (value or (isinstance(value, int | float) and value is not False)):
            continue  # what is empty or false, but not zero
        if isinstance(value, dict):
            value = [f"{name} {member}" for name, member in value.items()]
        texts = map(str, value) if isinstance(value, list | tuple) else [str(value)]
        values.append(f"{key}={'; '.join(texts)}")
    words = [
        at.astimezone().strftime("%H:%M:%S"),
        *([level.upper()] if level not in ("info", "debug") else []),
        *([" ".join(subject) + ":"] if subject else []),
        str(event.get("event", "")),
        *([f"({', '.join(values)})"] if values else []),
    ]
    trace = event.get("exception")
    line = _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), " ".join(words))
    return line + (f"\n{trace}" if trace else "")
