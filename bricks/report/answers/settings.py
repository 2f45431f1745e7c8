"""Settings of models in words: ``here with 2 threads``, ``with openvino on zen5``."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from bricks.report.answers.words import copies_text, listed
from bricks.report.figures import count_text
from bricks.session.defaults import PROGRAMS_RUNTIME, RUNTIME
from bricks.studies.inference.settings import DIMENSIONS, Setting

# Runtimes that are not named: those of models and of programs, unless another one is chosen.
_USUAL = frozenset((RUNTIME, PROGRAMS_RUNTIME))


def place_of(setting: Setting) -> str:
    """The place of one setting: ``here with 2 threads``."""
    return setting_text(setting, usual_dimensions(setting))


def usual_dimensions(setting: Setting) -> Sequence[str]:
    """The dimensions that an answer names, whatever varies; not a usual runtime, nor sizes."""
    unnamed = {"shapes", "batch"}
    if setting.runtime in _USUAL:
        unnamed.add("runtime")
    if setting.quantize is None:
        unnamed.add("quantize")
    if setting.target is not None and setting.target.system.accelerator is not None:
        unnamed.add("threads")
    return [name for name in DIMENSIONS if name not in unnamed]


def setting_text(setting: Setting, dimensions: Collection[str]) -> str:
    """These ``dimensions`` of a setting in words: ``on zen5 with openvino at batch 8``."""
    parts = [f"with {listed(means)}"] if (means := [*_means(setting, dimensions)]) else []
    if "system" in dimensions:
        parts.insert(0, "here" if setting.system is None else f"on {setting.system_name}")
    if "shapes" in dimensions and setting.shapes:
        parts.append(f"at {shapes_text(setting.shapes)}")
    if "batch" in dimensions and setting.batch is not None:
        parts.append(f"at batch {setting.batch}")
    return " ".join(parts)


def shapes_text(shapes: Sequence[str]) -> str:
    """Shapes of inputs in words; of a single input without its name."""
    return shapes[0].rpartition("=")[2] if len(shapes) == 1 else " ".join(shapes)


def _means(setting: Setting, dimensions: Collection[str]) -> Iterator[str]:
    """The words that follow ``with``."""
    if "runtime" in dimensions:
        yield setting.runtime
    if "quantize" in dimensions:
        yield setting.quantize or "its own precision"
    if "threads" in dimensions and setting.threads is not None:
        yield f"{count_text(setting.threads, 'thread')}{copies_text(setting.copies)}"
