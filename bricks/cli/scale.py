"""``bricks scale``: a program's training on several ranks, predicted from its bricks."""

from bricks.cli.study import File, command_of
from bricks.report.study import from_report
from bricks.studies.scaling import OFFER

_PAGE = File(
    name="out", fact="page", metavar="FILE.html",
    help="Write curves and the timeline of a step into one page.",
    text=from_report("scaling:scaling_page"),
    note="curves and the timeline of a step; open it in any browser.",
)  # fmt: skip
_TRACE = File(
    name="trace", fact="trace", metavar="FILE.json",
    help="Write one step over the most ranks, for ui.perfetto.dev.",
    text=from_report("scaling:scaling_trace"),
    note="the step; open it in ui.perfetto.dev.", page=False,
)  # fmt: skip

scale = command_of(OFFER, (_PAGE, _TRACE))
