"""The program that `spark-submit` runs on a cluster: the command line of the bridge."""

from bridge.cli import main

main()
