"""Runs of a program: its calls replayed, its steps timed, trained and checked."""
