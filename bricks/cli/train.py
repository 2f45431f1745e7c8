"""``bricks train``: the time of a training, predicted from bricks, and measured with --run."""

from bricks.cli.study import File, command_of
from bricks.report.study import from_report
from bricks.studies.training import OFFER

_PAGE = File(
    name="out", fact="page", metavar="FILE.html", help="Write the loss curves into one page.",
    text=from_report("training:training_page"),
    note="the loss of each seed; open it in any browser.",
)  # fmt: skip

train = command_of(OFFER, (_PAGE,))
