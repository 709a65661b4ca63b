"""Why these CPUs: what a choice was made of, as plain values that any view can print."""

from dataclasses import dataclass

__all__ = ["Reason"]


@dataclass(frozen=True, slots=True)
class Reason:
    """One step of a decision: `step` is a short stable key (numa, pick, …), `text` is for people."""

    step: str
    text: str
    container: str = ""
