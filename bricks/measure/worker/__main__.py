"""Starts the child process: ``python -m bricks.measure.worker``."""

from bricks.measure.worker.loop import main

main()
