"""Begins the command line: ``python -m bricks``."""

from bricks.cli.main import main

if __name__ == "__main__":
    main()
