"""Destination and format of the log: lines on stderr, JSON if stderr is not a terminal."""

from __future__ import annotations

import logging
import sys

import structlog


def configure(level: int = logging.INFO, *, as_json: bool | None = None) -> None:
    """Configure the log, once, from the entry point. `as_json` None: JSON if stderr is not a terminal."""
    structured = not sys.stderr.isatty() if as_json is None else as_json
    shared: list[structlog.typing.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    renderer = (
        structlog.processors.JSONRenderer() if structured else structlog.dev.ConsoleRenderer(pad_event_to=0)
    )
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler()
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
