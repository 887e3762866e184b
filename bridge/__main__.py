"""`python -m bridge`: the same as `mqbridge`."""

from bridge.cli import main

if __name__ == "__main__":
    main()
