"""How Sphinx makes the pages of this folder a site: ``make docs``.

Pages are Markdown that reads as well where no site is built: they link to each other, and to files
of the repository, by relative paths. What they link to outside of this folder is brought in here.
Nothing is fetched: neither when the site is built, nor when it is read.
"""

from __future__ import annotations

import importlib.util
import os
import re
from pathlib import Path
from typing import Any

import bricks

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent

project = "bricks"
author = "the authors of bricks"
version = release = bricks.__version__
project_copyright = author

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton"]
exclude_patterns = ["_build"]
root_doc = "index"
highlight_language = "none"  # what is indented says nothing of its language

# Anchors as they are on GitHub, for all headings.
myst_heading_anchors = 6

autoclass_content = "both"
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
python_display_short_literal_types = True

html_theme = "furo"
html_title = "bricks"
html_copy_source = False
html_show_sphinx = False
html_static_path = ["_static"]
html_css_files = ["bricks.css"]

# Pages of the repository that are not in this folder, and where copies of them are put (by this
# file, each time; git ignores them).
COPIES = HERE / "project"
OUTSIDE = {
    ROOT / "README.md": COPIES / "readme.md",
    ROOT / "CONTRIBUTING.md": COPIES / "contributing.md",
    ROOT / "CHANGELOG.md": COPIES / "changelog.md",
    ROOT / "models" / "README.md": COPIES / "models.md",
    ROOT / "notebooks" / "README.md": COPIES / "notebooks.md",
    **{
        page: COPIES / "research" / page.name.lower()
        for page in sorted((ROOT / "research").glob("*.md"))
    },
}
LINK = re.compile(r"(?<=\]\()(?!https?:|mailto:|#)([^)#\s]+)(?=[)#])")

# Types of other packages: their documentation is on a network.
FOREIGN = (
    r"(np|numpy|onnx|pathlib|collections|typing|types|sqlalchemy|contextlib|Path|Any|Callable"
    r"|Graph|Figure|bricks.backends.base.C"  # the last is a type variable
    # Aliases of types, which annotations name.
    r"|Progress|ValueType|Mismatch|TimedRound|Rekey|Record|BatchSeconds|Turns"
    r"|(bricks\.units\.draws\.)?Drawn?)"
)
nitpick_ignore_regex = [("py:.*", rf"{FOREIGN}(\..*)?")]


def relinked(text: str, origin: Path, page: Path) -> str:
    """``text`` of the file ``origin``, with relative links as they must be in ``page``."""

    def link(found: re.Match[str]) -> str:
        meant = (origin.parent / found[1]).resolve()
        return os.path.relpath(OUTSIDE.get(meant, meant), page.parent)

    return LINK.sub(link, text)


def copy_pages(app: Any, config: Any) -> None:
    """Bring in the pages that are not in this folder."""
    for origin, page in OUTSIDE.items():
        text = relinked(origin.read_text(encoding="utf-8"), origin, page)
        page.parent.mkdir(parents=True, exist_ok=True)
        if not page.exists() or page.read_text(encoding="utf-8") != text:
            page.write_text(text, encoding="utf-8")


def read_page(app: Any, name: str, source: list[str]) -> None:
    """Let a page of this folder link to the copies of those outside."""
    page = HERE / f"{name}.md"
    if page.exists() and COPIES not in page.parents:
        source[0] = relinked(source[0], page, page)


def resolve(app: Any, env: Any, node: Any, content: Any) -> Any:
    """Find names of the package by the module that they come from.

    What is public is documented as ``bricks.Name``; annotations and docstrings know its module.
    Types that only type checkers import have none in annotations.
    """
    if node.get("refdomain") != "py":
        return None
    target = node["reftarget"]
    module, _, name = target.rpartition(".")
    if name in bricks.__all__ and (not module or module.startswith("bricks.")):
        node["reftarget"] = f"bricks.{name}"
    elif not module:
        names = [each for each in env.domains["py"].objects if each.endswith(f".{name}")]
        node["reftarget"] = names[0] if len(names) == 1 else target
    if node["reftarget"] != target:
        return env.domains["py"].resolve_xref(
            env, node["refdoc"], app.builder, "obj", node["reftarget"], node, content
        )
    if node["reftype"] == "mod" and target.startswith("bricks."):
        return content if importlib.util.find_spec(target) else None
    return None


def setup(app: Any) -> None:
    """What Sphinx calls."""
    app.connect("config-inited", copy_pages)
    app.connect("source-read", read_page)
    app.connect("missing-reference", resolve)
