"""What can be wrong with a kubelet's state file, or with what is said of the kubelet, in one line each."""

__all__ = ["RepairError", "SettingsError", "StateFileError"]


class StateFileError(ValueError):
    """A file that cannot be used; the message names the file, the field, and what to do."""


class SettingsError(ValueError):
    """An option or a field of a configuration that makes no sense; names it, its value, and what to do."""


class RepairError(ValueError):
    """No valid state file can hold what is running under these settings; says why, and what to change."""
