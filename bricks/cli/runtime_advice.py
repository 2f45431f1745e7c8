"""``bricks advise --runtimes``: which runtime is the fastest for each model, here or elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from bricks.cli.known import refuse_missing
from bricks.cli.options import Surveying, given_values, open_bench
from bricks.cli.output import finish, print_json, show
from bricks.cli.predict import PROVENANCE
from bricks.cli.systems import target_called
from bricks.errors import BricksError, UsageError, suggestion

if TYPE_CHECKING:
    from bricks.analysis.runtimes import Place, RuntimeAnswer, RuntimeChoice
    from bricks.graph.model import Model
    from bricks.session.bench import Bench


def advise_runtimes(options: Surveying, runtimes: str, systems: Sequence[str]) -> None:
    """Print for each model that is named its runtimes, the fastest first.

    On each of the ``systems``, which are names or keys; without any, on this host.
    """
    from bricks.analysis.runtimes import choose_runtime
    from bricks.graph.sizes import parse_shape

    names = _names(runtimes)
    if not options.models:
        raise UsageError("advice on runtimes is for models that are named: name one")
    refuse_missing(options.cache)
    shapes = dict(map(parse_shape, options.shape or []))
    values = given_values(options)
    choices = []
    with ExitStack() as opened:
        benches: dict[str, Bench | BricksError] = {}
        for runtime in names:
            try:
                benches[runtime] = opened.enter_context(
                    open_bench(replace(options, runtime=runtime))
                )
            except BricksError as error:
                benches[runtime] = error
        asked: Sequence[str | None] = systems or [None]
        everywhere = [_places(benches, system) for system in asked]
        for name in options.models:

            def read(bench: Bench, name: str = name) -> Model:
                return bench.read(name, batch=options.batch, shapes=shapes, values=values)

            choices += [choose_runtime(places, read, name) for places in everywhere]
    facts = {"models": [_facts(choice) for choice in choices]}
    if options.json:
        print_json(facts)
    elif any(choice.fastest for choice in choices):
        from bricks.report.runtimes import runtime_parts

        show(*runtime_parts(facts))
    finish(each.error for choice in choices for each in choice.answers if each.error is not None)


def _places(
    benches: Mapping[str, Bench | BricksError], system: str | None
) -> dict[str, Place | BricksError]:
    """Each runtime on ``system``, or why it can't be asked there; None is this host.

    Raises :class:`UsageError` if no runtime can be asked there, or not with as many threads.
    """
    from bricks.analysis.runtimes import Place

    found: dict[str, Place | BricksError] = {}
    for runtime, bench in benches.items():
        if isinstance(bench, BricksError):
            found[runtime] = bench
        elif system is None:
            found[runtime] = Place(bench, bench.target)
        else:
            try:
                found[runtime] = Place(bench, target_called(bench, system))
            except UsageError as error:
                found[runtime] = error
    places = [each for each in found.values() if isinstance(each, Place)]
    refused = [each for each in found.values() if isinstance(each, UsageError)]
    if refused and not places:
        raise refused[0]
    threads = sorted({place.target.runtime.threads for place in places})
    if len(threads) > 1:
        raise UsageError(
            f"system {system!r} has measurements with {' and '.join(map(str, threads))} threads,"
            " but not of each runtime with as many: add --threads"
        )
    return found


def _names(text: str) -> list[str]:
    from bricks import backends

    found = [name.strip() for name in text.split(",") if name.strip()]
    for name in found:
        if name not in backends.names():
            meant = suggestion(name, backends.names())
            raise UsageError(f"no runtime is called {name!r}: {meant}")
    if len(set(found)) < 2:
        raise UsageError(
            f"--runtimes {text!r} leaves nothing to choose: give two, such as onnxruntime,openvino"
        )
    return list(dict.fromkeys(found))


def _facts(choice: RuntimeChoice) -> dict[str, Any]:
    return {
        "model": choice.model,
        "system": None if choice.system is None else choice.system.name,
        "system_key": None if choice.system is None else choice.system.key,
        "threads": choice.threads,
        "fastest": choice.fastest,
        "ahead": choice.ahead,
        "risk": choice.risk,
        "runtimes": [_answer_facts(each) for each in choice.answers],
    }


def _answer_facts(answer: RuntimeAnswer) -> dict[str, Any]:
    found = answer.estimate
    figures = ("estimate_s", "low_s", "high_s", *PROVENANCE)
    return {
        "runtime": answer.runtime,
        "version": answer.version,
        **{name: None if found is None else getattr(found, name) for name in figures},
        "lower_s": answer.lower_s,
        "losses": [asdict(loss) for loss in answer.losses],
        "error": answer.error,
    }
