"""What a study of a served model is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bricks.errors import UsageError
from bricks.studies.serving.checkable import refuse_unchecked
from bricks.studies.serving.scenario import ScenarioLoad, Serving
from bricks.system import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioOptions:
    """``model`` under ``load``, as ``serving`` says.

    ``shapes`` and ``values`` are those of :meth:`Workspace.read`, which gets each size of a batch.
    ``system`` is a known one in place of this host, or ``target`` is given. With ``check``, the
    model is really served, and asked ``queries``, by default enough for the percentile that counts.
    """

    model: str
    load: ScenarioLoad
    serving: Serving = field(default_factory=Serving)
    shapes: Mapping[str, Sequence[int | None]] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
    system: str | None = None
    target: Target | None = None
    check: bool = False
    queries: int | None = None

    def __post_init__(self) -> None:
        if not self.check:
            return
        if self.system is not None:
            raise UsageError("--check serves the model on this host: leave out --system")
        refuse_unchecked(self.load, self.serving)
