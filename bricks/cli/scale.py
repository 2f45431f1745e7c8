"""``bricks scale``: a program's training on several ranks, predicted from its bricks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bricks.cli.pages import today
from bricks.cli.study import File, View, command_of
from bricks.studies.scaling import OFFER

if TYPE_CHECKING:
    from rich.console import RenderableType

    from bricks.studies.scaling.result import ScalingResult


def _parts(result: ScalingResult) -> Sequence[RenderableType]:
    from bricks.report.scaling import scaling_parts

    return scaling_parts(result)


def _page(result: ScalingResult) -> str:
    from bricks._version import __version__
    from bricks.report.scaling_page import scaling_page

    return scaling_page(result, version=__version__, made=today())


def _trace(result: ScalingResult) -> str:
    from bricks.report.scaling_trace import scaling_trace

    return scaling_trace(result)


_PAGE = File(
    name="out", fact="page", metavar="FILE.html",
    help="Write curves and the timeline of a step into one page.",
    text=_page, told="curves and the timeline of a step; open it in any browser.",
)  # fmt: skip
_TRACE = File(
    name="trace", fact="trace", metavar="FILE.json",
    help="Write one step over the most ranks, for ui.perfetto.dev.",
    text=_trace, told="the step; open it in ui.perfetto.dev.", page=False,
)  # fmt: skip

scale = command_of(OFFER, View(_parts, (_PAGE, _TRACE)))
