"""`mqbridge`: the command line of the bridge, and MQ applications for the shell (`mqbridge mq`)."""

import os
import sys

#: What others need not read or write of the files that commands, and the bridge itself, make.
UMASK = 0o027


def main() -> None:
    """Run the command that `sys.argv` names, and leave with its exit status."""
    os.umask(os.umask(UMASK) | UMASK)
    try:
        # Imported here, so that a module of this package can be used without building the whole command line.
        from bridge.cli.program import program

        program(prog_name="mqbridge")
    except KeyboardInterrupt:  # before typer is imported, which would return this status
        sys.exit(130)
