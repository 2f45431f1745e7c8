"""The type of progress reports. Must not know who shows them."""

from collections.abc import Callable

# Receives the name of the work in progress, and the share that is done, between 0 and 1.
Progress = Callable[[str, float], None]


class Wait(str):
    """A name of work in progress that is a wait for ``others``: processes, for people.

    It may last, so it is worth a line also where no progress is shown.
    """

    others: str

    def __new__(cls, others: str, why: str) -> "Wait":
        """``waiting for`` the processes ``others``, and ``why``."""
        made = super().__new__(cls, f"waiting for {others}{why}")
        made.others = others
        return made
