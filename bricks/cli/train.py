"""``bricks train``: the time of a training, predicted from bricks, and measured with --run."""

from bricks.cli.study import File, View, command_of, from_report
from bricks.studies.training import OFFER

_PAGE = File(
    name="out", fact="page", metavar="FILE.html", help="Write the loss curves into one page.",
    text=from_report("training_page:training_page"),
    note="the loss of each seed; open it in any browser.",
)  # fmt: skip

train = command_of(
    OFFER,
    View(
        from_report("training:training_parts"),
        (_PAGE,),
        from_report("answers.training:training_answer"),
        from_report("answers.training:training_remarks"),
        from_report("training:training_details"),
    ),
)
