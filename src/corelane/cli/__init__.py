"""The command line: parses, calls one function, prints through `view`.

Nothing heavy is imported here or at the top of a command's module, so that `--help` and completion
answer at once.
"""

from corelane.cli._root import main

__all__ = ["main"]
