"""`python -m bridge.cli`: the command line of the bridge."""

from bridge.cli import main

main()
