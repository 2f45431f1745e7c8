"""Starts the child process: ``python -m bricks.measure.worker``."""

from bricks.measure.worker.worker import main

main()
