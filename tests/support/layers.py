"""The order of the package: the layers of its heart, and the rings around it.

``tests/whole/test_imports_flow_one_way.py`` holds it, and ``docs/draw_architecture.py`` draws it.
"""

from __future__ import annotations

# From below: what is in one layer imports from layers before it, and from itself alone. "" is
# bricks/__init__.py, the public API, whose names are loaded when they are first used.
LAYERS = (
    {"errors", "_version", "closing"},
    {"units"},
    {"graph", "system"},
    {"operators"},
    {"architectures", "decompose", "reading", "zoo"},
    {"backends", "samples"},
    {"store", "suite", "predict", "network"},
    {"measure"},
    {"compose", "sources"},
    {"session"},
    {"studies"},
    {"analysis", "fleet"},
    {"api"},
    {"report"},
    {"web"},
    {""},
    {"cli"},
    {"__main__"},
)

# Rings: packages that the heart does not know. Each with the modules that name it, which are its
# own command and report, and the questions that are made of its answers. A runtime and a study are
# found by entry point or by name, so nothing imports a runtime.
RINGS: dict[str, frozenset[str]] = {
    "backends.openvino": frozenset(),
    "backends.mxnet": frozenset(),
    "backends.torch": frozenset(),
    "studies.training": frozenset({"", "cli.train", "report.training"}),
    "studies.scaling": frozenset({"", "cli.scale", "report.scaling", "web.study_pages"}),
    "studies.serving": frozenset(
        {"", "cli.scenario", "report.scenario"}
        | {"analysis.advice", "analysis.advising", "cli.advise", "report.advice"}
    ),
    "studies.generation": frozenset({"", "cli.llm", "report.generation", "web.study_pages"}),
    "studies.numerics": frozenset({"cli.validate", "report.operators"}),
    "suite": frozenset(
        {"", "cli.cache", "cli.generate", "fleet.host", "session.portable", "sources.files"}
    ),
    "fleet": frozenset({"cli.interconnect", "cli.measure", "cli.worker"}),
    "web": frozenset({"cli.web"}),
}
