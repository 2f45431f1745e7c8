"""``bricks advise --runtimes``: the fastest runtime for each model on given systems."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from bricks.cli.caches import refuse_missing_cache
from bricks.cli.options import SurveyOptions
from bricks.cli.output import finish, print_json, show
from bricks.cli.reading import shapes_of, values_of
from bricks.cli.workspaces import open_workspace
from bricks.errors import BackendError, BricksError, UsageError, suggestion
from bricks.session.defaults import OPTIMIZATION
from bricks.session.targets import nearness, systems_called, target_called
from bricks.studies.options import option

if TYPE_CHECKING:
    from bricks.analysis.runtimes import RuntimeAdvice, RuntimeCandidate
    from bricks.graph.model import Model
    from bricks.session.workspace import Workspace
    from bricks.system import Target


def _names(flag: str, text: str) -> Sequence[str]:
    """Names of at least two runtimes, separated by commas."""
    from bricks import backends

    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in backends.names():
            meant = suggestion(name, backends.names())
            raise UsageError(f"no runtime is called {name!r}: {meant}")
    if len(set(names)) < 2:
        raise UsageError(
            f"{flag} {text!r} leaves nothing to choose: give two, such as onnxruntime,openvino"
        )
    return list(dict.fromkeys(names))


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeAdviceOptions:
    """The runtimes of which the fastest is named, separated by commas."""

    runtimes: Sequence[str] | None = option(
        "Tell which of these runtimes is the fastest, and how sure that is.",
        default=None, metavar="onnxruntime,openvino", shown=False, read=_names,
    )  # fmt: skip


def advise_runtimes(
    options: SurveyOptions, systems: Sequence[str], runtimes: Sequence[str]
) -> None:
    """Print the runtimes of each named model, the fastest first.

    On each of ``systems``, names or keys; without any, on this host.
    """
    from bricks.units.facts import facts

    if not options.models.words:
        raise UsageError("advice on runtimes is for models that are named: name one")
    refuse_missing_cache(options.general.cache)
    advice = _advice(options, runtimes, systems)
    if options.general.json:
        print_json(facts(advice))
    elif advice.answered:
        from bricks.report.runtimes import runtime_parts

        show(*runtime_parts(advice.models))
    finish(advice.errors)


def _advice(options: SurveyOptions, names: Sequence[str], systems: Sequence[str]) -> RuntimeAdvice:
    """The advice for each model on each system; on this host without any."""
    from bricks.analysis.runtimes import RuntimeAdvice, choose_runtime

    read_as = _reading(options)
    asked: Sequence[str | None] = systems or [None]
    with ExitStack() as opened:
        workspaces = {name: _workspace(opened, _with_runtime(options, name)) for name in names}
        reader = _reader(opened, options, workspaces)
        candidates = [_candidates(workspaces, system, reader) for system in asked]
        choices = [
            choose_runtime(system_candidates, partial(read_as, name), name)
            for name in options.models.words
            for system_candidates in candidates
        ]
    return RuntimeAdvice(tuple(choices))


def _reading(options: SurveyOptions) -> Callable[[str, Workspace], Model]:
    """Return a function that reads a named model for a workspace, in the shapes of ``options``."""
    shapes, values = shapes_of(options.models), values_of(options.models)

    def read(name: str, workspace: Workspace) -> Model:
        return workspace.read(name, batch=options.models.batch, shapes=shapes, values=values)

    return read


def _with_runtime(options: SurveyOptions, name: str, **changed: Any) -> SurveyOptions:
    return replace(options, runtime=replace(options.runtime, name=name, **changed))


def _workspace(opened: ExitStack, options: SurveyOptions) -> Workspace | BricksError:
    """Open a workspace that is closed with ``opened``; return the error if it cannot be opened."""
    try:
        return opened.enter_context(open_workspace(options))
    except BricksError as error:
        return error


def _reader(
    opened: ExitStack, options: SurveyOptions, workspaces: Mapping[str, Workspace | BricksError]
) -> Workspace:
    """A workspace that reads models for runtimes that this host lacks."""
    for workspace in workspaces.values():
        if not isinstance(workspace, BricksError):
            return workspace
    from bricks.backends import unneeded

    other = _with_runtime(options, unneeded(), optimization=OPTIMIZATION)
    return opened.enter_context(open_workspace(other))


def _candidates(
    workspaces: Mapping[str, Workspace | BricksError], system: str | None, reader: Workspace
) -> dict[str, RuntimeCandidate | BricksError]:
    """The target of each runtime on ``system``, or its error; None is this host.

    ``reader`` reads models for runtimes that this host lacks. Raises :class:`UsageError` if there
    is no target at all, or if none of the numbers of threads has all runtimes.
    """
    from bricks.analysis.runtimes import RuntimeCandidate

    candidates: dict[str, RuntimeCandidate | BricksError] = {}
    for runtime, workspace in workspaces.items():
        try:
            if isinstance(workspace, BackendError):
                candidates[runtime] = _candidate_elsewhere(runtime, workspace, system, reader)
            elif isinstance(workspace, BricksError):
                candidates[runtime] = workspace
            else:
                target = workspace.target if system is None else target_called(workspace, system)
                candidates[runtime] = RuntimeCandidate(workspace, target)
        except (BackendError, UsageError) as error:
            candidates[runtime] = error
    usable = [of for of in candidates.values() if isinstance(of, RuntimeCandidate)]
    refused = [of for of in candidates.values() if isinstance(of, UsageError)]
    if refused and not usable:
        raise refused[0]
    threads = sorted({of.target.runtime.threads for of in usable})
    if len(threads) > 1:
        raise UsageError(
            f"system {system!r} has measurements with {' and '.join(map(str, threads))} threads,"
            " but not of each runtime with as many: add --threads"
        )
    return candidates


def _candidate_elsewhere(
    runtime: str, lack: BackendError, system: str | None, reader: Workspace
) -> RuntimeCandidate:
    """The target on ``system`` of a ``runtime`` that this host lacks; None is this host.

    Raises :class:`BackendError` if it was not measured there: ``lack``, and where it was measured.
    """
    from bricks.analysis.runtimes import RuntimeCandidate

    every, threads = reader.known.systems.targets(), reader.options.threads
    keys = {reader.target.system.key}
    if system is None:
        threads = reader.runtime.threads
    else:
        keys = {of.key for of in systems_called((t.system for t in every), system)}
    of_runtime = [target for target in every if target.runtime.backend == runtime]
    known = [target for target in of_runtime if reader.known.measurements.costs(target.key)]
    there = [target for target in known if target.system.key in keys]
    targets = [target for target in there if threads in (None, target.runtime.threads)]
    if not targets:
        raise BackendError(f"{lack}{_hint(there, known)}")
    return RuntimeCandidate(reader, max(targets, key=partial(nearness, reader.runtime)), lack)


def _hint(there: Sequence[Target], known: Sequence[Target]) -> str:
    """The option with which a runtime was measured: other threads ``there``, or another system."""
    if there:
        return f", or add --threads {there[0].runtime.threads}, with which it was measured"
    names = sorted({target.system.name for target in known})
    return f", or add --on {names[0]}, where it was measured" if names else ""
