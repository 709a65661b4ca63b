"""The small process between corelane and one container: starts it, keeps its log, records how it ended.

Run with DIRECTORY LOCK_FD REPORT_FD as arguments (see `COMMAND`) and its instructions (see `supervise`)
marshalled on stdin. It outlives corelane. What became of the container stands in DIRECTORY/status.json,
replaced whole at each step:

    running  the command has been executed, on the right CPUs from its first instruction
    failed   it could not be; `stage` and `errno` say why
    exited   the main process ended, and so did, by SIGKILL where need be, everything that it left behind

When LOCK_FD's file is unlocked, the shim is gone. REPORT_FD is closed once the container
runs or has failed. As a subreaper the shim inherits every orphan of the container, so that nothing escapes
it.

There is one shim a container, so it imports little: typing, json, pathlib and contextlib would cost a
megabyte each. It runs as a package of its own, without those above it.
"""

COMMAND = "import sys; sys.path.append(sys.argv.pop(1)); from shim.supervise import main; main()"
"""For `python -I -S -c COMMAND PARENT_DIRECTORY …`: unlike a script, an import is not compiled each time."""
