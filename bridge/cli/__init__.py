"""`mqbridge`: the command line of the bridge, and MQ applications for the shell (`mqbridge mq`)."""


def main() -> None:
    """Run the command that `sys.argv` names, and leave with its exit status."""
    # Imported here, so that a module of this package can be used without building the whole command line.
    from bridge.cli.program import program

    program(prog_name="mqbridge")
