"""Pages as self-contained HTML files: no network, no server, no other file.

Templates are next to this module; Jinja escapes all model names, and scripts only ever set text.
Must not compute results.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bricks.errors import UsageError, printable
from bricks.report.figures import target_text
from bricks.report.tables import billions, percent, seconds, size

if TYPE_CHECKING:
    import jinja2

    from bricks.system import Target

_TEMPLATES = Path(__file__).with_name("templates")


def check_renderer() -> None:
    """Raise :class:`UsageError` if the packages that make pages are not installed."""
    for package in ("altair", "jinja2", "vl_convert"):
        if find_spec(package) is None:
            raise UsageError(
                f"reports need {package}, which is not installed: pip install 'onnx-bricks[report]'"
            )


def render_page(name: str, **values: Any) -> str:
    """The page of the template called ``name``; undefined values are errors."""
    return environment(_TEMPLATES).get_template(f"{name}.html.jinja").render(**values)


def environment(folder: Path) -> jinja2.Environment:
    """The templates in ``folder``: values are escaped; the filters format quantities."""
    import jinja2

    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.globals |= {"library": library, "style": style}
    templates.filters |= {
        "seconds": seconds,
        "size": size,
        "percent": percent,
        "printable": printable,
        "giga": billions,
        "millions": _millions,
    }
    return templates


def style() -> str:
    """The style sheet of all pages."""
    return (_TEMPLATES / "report.css").read_text(encoding="utf-8")


def script(name: str) -> str:
    """The script called ``name``."""
    return (_TEMPLATES / f"{name}.js").read_text(encoding="utf-8")


def target_label(target: Target) -> str:
    """The label of a target, if there are several."""
    level = target.runtime.optimization
    return target_text(target) + ("" if level == "all" else f", optimisation {printable(level)}")


@cache
def library() -> str:
    """Vega, Vega-Lite and the embedding library, as one script."""
    import altair
    import vl_convert

    version = ".".join(altair.SCHEMA_VERSION.lstrip("v").split(".")[:2])
    script: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=version)
    return script.replace("</script", "<\\/script")


def in_script(data: Mapping[str, Any]) -> str:
    """``data`` as JSON for a script element, with all tags escaped."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _millions(value: float) -> str:
    return f"{value / 1e6:.3g}"
