"""How work in progress is announced. Must not know who shows it."""

from collections.abc import Callable

# Receives the name of the work in progress, and the share that is done.
Progress = Callable[[str, float], None]
