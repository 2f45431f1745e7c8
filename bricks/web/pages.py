"""Pages from the facts that the JSON interface gives; the pictures are those of the report.

Templates escape all names. Must not compute what is shown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bricks._version import __version__
from bricks.analysis.answers import Answer, NoAnswer
from bricks.compose.memory.peak import UnknownMemory
from bricks.report import charts
from bricks.report.page import environment, in_script, library, target_label
from bricks.report.picture_data import picture_data
from bricks.report.tables import measured_text, peak_parts, peak_size

if TYPE_CHECKING:
    import jinja2

    from bricks.web.answer_service import ModelPictures

_HERE = Path(__file__).parent
_REPORT = _HERE.parent / "report" / "templates"

_UNIT = re.compile(r"(\d) (%|s\b|ms\b|µs\b|ns\b|[KMG]iB\b|threads?\b)")

_PART_FACTS = (
    "brick", "operator", "shapes", "occurrences", "total_s", "share", "predicted", "flops",
    "bytes",
)  # fmt: skip

_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


@cache
def _environment() -> jinja2.Environment:
    found = environment(_HERE / "templates")
    # Numbers and their units stay in one line.
    unbroken = partial(_UNIT.sub, "\\1\u00a0\\2")
    found.filters |= {"measured": measured_text, "unbroken": unbroken}
    return found


def page(template: str, *, measure: bool, **values: Any) -> bytes:
    """The page rendered from the template of this name."""
    source = _environment().get_template(f"{template}.html.jinja")
    return source.render(version=__version__, measure=measure, **values).encode()


@cache
def static() -> Mapping[str, tuple[bytes, str]]:
    """The files that pages load, by name, with their media types."""
    files = {path.name: path.read_bytes() for path in sorted((_HERE / "static").iterdir())}
    files["report.css"] = (_REPORT / "report.css").read_bytes()
    script = (_REPORT / "pictures.js").read_text(encoding="utf-8")
    files["pictures.js"] = f"{library()}\n{script}".encode()
    return {name: (content, _TYPES[Path(name).suffix]) for name, content in files.items()}


def picture_values(pictures: ModelPictures, digest: str) -> dict[str, Any]:
    """The values of the page of pictures of a model's latency."""
    picture = pictures.picture
    explanation = picture.explanation
    peaks, roofline = explanation.peaks, charts.roofline()
    measured = peaks.flops_per_s is not None and peaks.bytes_per_s is not None
    if not measured:  # an empty layer has no extent
        roofline["layer"] = [
            layer for layer in roofline["layer"] if layer["data"]["name"] != "roof"
        ]
    specs = {
        "breakdown": charts.breakdown() | {"description": "Time by operator"},
        "timeline": charts.timeline() | {"description": "Bricks in the order of execution"},
        "roofline": roofline | {"description": "Rates of bricks below the roofline"},
    }
    answer, memory = pictures.answer, explanation.memory
    known: dict[str, Any] = {"peak": None, "peak_parts": "", "peak_lacks": "", "no_peak": ""}
    if isinstance(memory, UnknownMemory):
        known["no_peak"] = memory.reason
    else:
        known["peak"] = peak_size(memory.peak_bytes, memory.unknown)
        known["peak_parts"] = peak_parts(asdict(memory))
        known["peak_lacks"] = "; ".join(memory.unknown)
    return {
        **known,
        "title": picture.plan.model,
        "digest": digest,
        "label": target_label(picture.target),
        "target": picture.target,
        "estimate": answer.estimate if isinstance(answer, Answer) else None,
        "reason": answer.reason if isinstance(answer, NoAnswer) else "",
        "operators": explanation.operators,
        "peaks_measured": measured,
        "arithmetic": any(part.flops for part in explanation.parts),
        "data": in_script(picture_data(picture)),
        "specs": in_script(specs),
    }


def picture_facts(pictures: ModelPictures, digest: str) -> dict[str, Any]:
    """The parts of a model's latency as JSON."""
    picture, answer = pictures.picture, pictures.answer
    return {
        "model": picture.plan.model,
        "digest": digest,
        "target": picture.target.key,
        "estimate_s": answer.estimate.estimate_s if isinstance(answer, Answer) else None,
        "error": answer.reason if isinstance(answer, NoAnswer) else None,
        "operators": [asdict(group) for group in picture.explanation.operators],
        "bricks": [
            {name: getattr(part, name) for name in _PART_FACTS}
            for part in picture.explanation.parts
        ],
    }


def matching(rows: Sequence[dict[str, Any]], words: str) -> list[dict[str, Any]]:
    """The rows with all of ``words`` in their texts, upper or lower case."""
    needed = words.lower().split()
    return [row for row in rows if all(word in str([*_texts(row)]).lower() for word in needed)]


def _texts(value: Any) -> list[str]:
    if isinstance(value, Mapping):
        return [text for item in value.values() for text in _texts(item)]
    if isinstance(value, list | tuple):
        return [text for item in value for text in _texts(item)]
    return [str(value)]
