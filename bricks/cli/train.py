"""``bricks train``: how long a program takes to learn, predicted from bricks beside measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bricks.cli.pages import today
from bricks.cli.study import File, View, command_of
from bricks.studies.training import OFFER

if TYPE_CHECKING:
    from rich.console import RenderableType

    from bricks.studies.training.result import TrainingResult


def _parts(result: TrainingResult) -> Sequence[RenderableType]:
    from bricks.report.training import training_parts

    return training_parts(result)


def _page(result: TrainingResult) -> str:
    from bricks._version import __version__
    from bricks.report.training_page import training_page

    return training_page(result, version=__version__, made=today())


_PAGE = File(
    name="out", fact="page", metavar="FILE.html", help="Write the loss curves into one page.",
    text=_page, told="the loss of each seed; open it in any browser.",
)  # fmt: skip

train = command_of(OFFER, View(_parts, (_PAGE,)))
