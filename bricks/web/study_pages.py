"""The studies that have a page: those of bricks, and those that other packages offer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from bricks.studies import generation, offer, scaling

if TYPE_CHECKING:
    from bricks.studies.offer import StudyOffer, StudyPage


def study_pages() -> Iterator[tuple[StudyOffer, StudyPage]]:
    """The studies with a page, and their pages."""
    others = (offer.offer(name) for name in offer.names())
    for study in (generation.OFFER, scaling.OFFER, *others):
        if study is not None and study.page is not None:
            yield study, study.page
