"""The type of progress reports. Must not know who shows them."""

from collections.abc import Callable

# Receives the name of the work in progress, and the share that is done, between 0 and 1.
Progress = Callable[[str, float], None]
