"""Settings that an operator gives in files and options."""

__all__ = ["SettingsError"]


class SettingsError(ValueError):
    """An option or a field of a file with an invalid value; names it, its value, and what is allowed."""
