"""`python -m corelane`."""

from corelane.cli import main

main(prog_name="corelane")
