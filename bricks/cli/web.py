"""``bricks web``: what models take on all known systems, on pages of a server of one's own."""

from __future__ import annotations

from typing import Annotated

import typer

from bricks.cli import completion
from bricks.cli.choices import GRANULARITIES
from bricks.cli.options import Cache, Threads
from bricks.cli.output import remark
from bricks.errors import UsageError
from bricks.session.defaults import CACHE, GRANULARITY, RUNTIME

KEEPS = ("plan", "model", "nothing")


def web(
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="The address to listen on.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, metavar="N", help="The port; 0 takes a free one.")
    ] = 8080,
    keep: Annotated[
        str,
        typer.Option(
            metavar="|".join(KEEPS),
            autocompletion=completion.values(KEEPS),
            help="What of an upload is kept: its plan, also the model without weights, or nothing.",
        ),
    ] = "plan",
    measure: Annotated[
        bool,
        typer.Option("--measure", help="Measure bricks that this host lacks, of every model."),
    ] = False,
    runtime: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            autocompletion=completion.runtimes,
            help="What decomposes uploaded models.",
        ),
    ] = RUNTIME,
    granularity: Annotated[
        str,
        typer.Option(
            metavar="executed|N|N+1",
            autocompletion=completion.values(GRANULARITIES),
            help="The bricks that models are cut into.",
        ),
    ] = GRANULARITY,
    threads: Threads = None,
    cache: Cache = CACHE,
) -> None:
    """Serve pages that tell what a model takes on every known system, until interrupted.

    Models are uploaded without their weights, or chosen from the zoo. Nothing is measured unless
    --measure says so. Example: bricks web --port 8080
    """
    if keep not in KEEPS:
        raise UsageError(f"--keep {keep!r} is not known: give one of {', '.join(KEEPS)}")
    try:
        import uvicorn  # noqa: F401  # only checks that they are installed
        from starlette.applications import Starlette  # noqa: F401
    except ImportError as exc:
        raise UsageError(
            f"the server needs {exc.name}, which is not installed: pip install 'onnx-bricks[web]'"
        ) from exc
    from bricks.report.page import check_renderer
    from bricks.session.options import Options
    from bricks.session.workspace import Workspace
    from bricks.web.app import application
    from bricks.web.limits import Keep
    from bricks.web.server import bound, serve

    check_renderer()
    options = Options(runtime=runtime, granularity=granularity, threads=threads)
    with Workspace.open(cache, options):
        pass  # a cache or an option that cannot be used is said before anybody connects
    app = application(cache, options, host=host, keep=Keep(keep), measure=measure)
    listening = bound(host, port)
    with listening:
        there = listening.getsockname()
        shown = f"[{there[0]}]" if ":" in there[0] else there[0]
        serve(app, listening, lambda: remark(f"listening on http://{shown}:{there[1]}"))
