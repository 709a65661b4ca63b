"""Python's signal module without its enumerations: they would take 0.9 MB in the shim of every container."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
else:
    import _signal as signal

__all__ = ["signal"]
