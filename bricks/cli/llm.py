"""``bricks llm``: text that a decoder generates, from its bricks."""

from bricks.cli.study import View, command_of, from_report
from bricks.studies.generation import OFFER

llm = command_of(
    OFFER,
    View(
        from_report("generation:llm_parts"),
        answer=from_report("answers.generation:llm_answer"),
        remarks=from_report("generation:llm_remarks"),
        details=from_report("generation:llm_details"),
    ),
)
