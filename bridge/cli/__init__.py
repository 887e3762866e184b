"""`mqbridge`: the command line of the bridge, and MQ applications for the shell (`mqbridge mq`)."""

import sys


def main() -> None:
    """Run the command that `sys.argv` names, and leave with its exit status."""
    try:
        # Imported here, so that a module of this package can be used without building the whole command line.
        from bridge.cli.program import program

        program(prog_name="mqbridge")
    except KeyboardInterrupt:  # before typer is there to turn it into this status
        sys.exit(130)
