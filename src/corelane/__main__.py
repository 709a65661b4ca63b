"""The process `corelane`, and `python -m corelane`."""

from corelane.interrupts import end_on_interrupt


def main() -> None:
    """Run the command line, which takes a while to import."""
    end_on_interrupt()
    from corelane.cli import main as command

    command(prog_name="corelane")


if __name__ == "__main__":
    main()
