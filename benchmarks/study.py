"""The frame of all benchmarks: cases, a measurement of each, typed rows in a file, parts of a page.

Each row is kept at once, and the next call goes on with the cases that lack one. Must not know any
benchmark.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Generic, Protocol, TypeVar, get_type_hints

from benchmarks.markdown import listing, with_parts
from bricks import Bench, BricksError, StopRule
from bricks.measure.conditions import Conditions
from bricks.measure.protocol.request import codec_of, message_codec
from bricks.system import System, fingerprint

ROOT = Path(__file__).resolve().parent.parent

# Shows that a benchmark works; its figures mean nothing.
QUICK_RULE, QUICK_CASES = StopRule(precision=0.5, min_rounds=2, max_rounds=2, passes=1), 2


class Row(Protocol):
    """A measured case; rows are frozen dataclasses, and so are cases."""

    @property
    def case(self) -> Any:
        """The case that was measured."""


CaseT = TypeVar("CaseT")
RowT = TypeVar("RowT", bound=Row)


@dataclass(frozen=True, slots=True)
class About:
    """The system of a file's rows and its key, versions of runtimes by name, date of the last."""

    system: str = ""
    key: str = ""
    runtimes: Mapping[str, str] = field(default_factory=dict)
    date: str = ""

    @property
    def runtime(self) -> str:
        """Names and versions of the runtimes: ``onnxruntime 1.31.1``."""
        return ", ".join(f"{name} {version}" for name, version in self.runtimes.items())


@dataclass(frozen=True, slots=True)
class Failed(Generic[CaseT]):
    """A case that could not be measured, and why, in one line."""

    case: CaseT
    error: str


@dataclass(frozen=True, slots=True)
class Results(Generic[RowT]):
    """All rows of a benchmark on one system; ``others`` are those on other systems."""

    about: About = field(default_factory=About)
    rows: tuple[RowT, ...] = ()
    failed: tuple[Failed[Any], ...] = ()
    others: tuple[Results[RowT], ...] = ()

    def without(self, cases: Collection[Any]) -> Results[RowT]:
        """The results of all other cases; nothing is known about a system without rows."""
        rows = tuple(row for row in self.rows if row.case not in cases)
        failed = tuple(each for each in self.failed if each.case not in cases)
        return Results(self.about if rows or failed else About(), rows, failed)


# The parts of a page, by name, from results.
Parts = Callable[[Results[RowT]], Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class Options:
    """How a benchmark is run.

    ``only`` are words of which a case must have one, or be of a benchmark of that name. No case is
    begun after ``deadline_s`` of ``time.monotonic()``, but the first. ``cache`` replaces the
    benchmark's folder of caches, ``runtime`` the runtimes that it names.
    With ``retry``, failed cases are measured again; with ``again``, all of them.
    """

    only: tuple[str, ...] = ()
    deadline_s: float = math.inf
    cache: Path | None = None
    runtime: str | None = None
    retry: bool = False
    again: bool = False
    quick: bool = False
    results: Path = ROOT / "benchmarks" / "results"


class Run:
    """What the cases of one call share: the folder of caches, the stop rule and the system."""

    def __init__(self, options: Options, folder: Path, rule: StopRule, about: About) -> None:
        self.options, self.folder, self.about = options, folder, about
        self.rule = QUICK_RULE if options.quick else rule

    @contextmanager
    def bench(self, cache: str | None = None, **options: Any) -> Iterator[Bench]:
        """A bench on the cache called ``cache`` in the folder, or on an empty one that goes again.

        Raises :class:`SystemExit` as :meth:`note`.
        """
        defaults = {"published": False, "conditions": Conditions(rule=self.rule)}
        named = {} if self.options.runtime is None else {"runtime": self.options.runtime}
        with ExitStack() as stack:
            empty = TemporaryDirectory() if cache is None else None
            folder = Path(stack.enter_context(empty)) if empty else self.folder / str(cache)
            folder.mkdir(parents=True, exist_ok=True)
            bench = stack.enter_context(Bench(folder, **{**defaults, **options, **named}))
            self.note(bench)
            yield bench

    def note(self, bench: Bench) -> None:
        """Add the version of the bench's runtime to what is known about the results.

        Raises :class:`SystemExit` where the rows so far are of another version.
        """
        name, version = bench.target.runtime.backend, bench.target.runtime.version
        known = self.about.runtimes.get(name, version)
        if known != version:
            raise SystemExit(
                f"the results so far are of {name} {known}, not {version}: give --again"
            )
        versions = {**self.about.runtimes, name: version}
        self.about = replace(self.about, runtimes=versions)


@dataclass(frozen=True, slots=True)
class Benchmark(Generic[CaseT, RowT]):
    """A benchmark: its cases, how one becomes a row, and the parts of ``page`` made from all rows.

    It stands in the module of its ``name``, or of ``module``. ``listed`` is everything that
    ``--rows`` prints. A benchmark ``per_host`` has a file of results for each system, and its page
    is written from the newest. ``others`` are further pages, by path from the first one's folder.
    """

    name: str
    page: str
    row: type[RowT]
    cases: Callable[[], Iterable[CaseT]]
    run: Callable[[CaseT, Run], RowT]
    parts: Parts[RowT]
    listed: Callable[[Results[RowT]], str] = lambda results: listing(results.rows)
    rule: StopRule = StopRule(precision=0.02, max_rounds=12)  # noqa: RUF009  # it is frozen
    per_host: bool = False
    module: str = ""
    others: Mapping[str, Parts[RowT]] = field(default_factory=dict)

    @property
    def script(self) -> str:
        """The module's path, which pages name."""
        return f"benchmarks/{self.module or self.name}.py"

    @property
    def title(self) -> str:
        """The name of its results."""
        return f"{self.module}-{self.name}" if self.module else self.name

    def file(self, folder: Path, system: System) -> Path:
        """The file of results in ``folder`` of a system; no other one of the same name has it."""
        if not self.per_host:
            return folder / f"{self.title}.json"
        host = re.sub(r"[^\w.-]+", "-", system.name)
        path = folder / self.title / f"{host}.json"
        if path.exists() and self.read(path).about.key not in ("", system.key):
            path = path.with_stem(f"{host}-{system.key.removeprefix('s1-')[:6]}")
        return path

    def kept(self, folder: Path) -> list[Results[RowT]]:
        """The results of all systems in ``folder``, the newest first; it has the others."""
        pattern = f"{self.title}/*.json" if self.per_host else f"{self.title}.json"
        found = [self.read(path) for path in sorted(folder.glob(pattern))]
        found.sort(key=lambda results: results.about.date, reverse=True)
        return [replace(found[0], others=tuple(found[1:])), *found[1:]] if found else []

    def read(self, path: Path) -> Results[RowT]:
        """The results in a file that :meth:`write` wrote; none if there is no file."""
        if not path.exists():
            return Results()
        data = json.loads(path.read_text(encoding="utf-8"))
        case = codec_of(get_type_hints(self.row)["case"])
        return Results(
            message_codec(About).from_json(data["about"]),
            tuple(map(message_codec(self.row).from_json, data["rows"])),
            tuple(Failed(case.from_json(each), error) for each, error in data["failed"]),
        )

    def write(self, results: Results[RowT], path: Path) -> None:
        """Replace a file of results, a row a line: all of it, or nothing."""
        case = codec_of(get_type_hints(self.row)["case"])
        failed = _lines([case.to_json(each.case), each.error] for each in results.failed)
        rows = _lines(message_codec(self.row).to_json(row) for row in results.rows)
        about = _compact(asdict(results.about))
        text = f'{{"about":{about},\n"failed":[{failed}],\n"rows":[\n{rows}\n]}}\n'
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_suffix(".new").write_text(text, encoding="utf-8")
        path.with_suffix(".new").replace(path)

    def missing(self, results: Results[RowT]) -> int:
        """The number of cases that have neither a row nor a reason why there is none."""
        done = [row.case for row in results.rows] + [each.case for each in results.failed]
        return sum(case not in done for case in self.cases())

    def measure(self, options: Options) -> int:
        """Measure the cases that have no row, and keep each; the number of cases that are left."""
        system = fingerprint()
        path = self.file(options.results, system)
        caches = (options.results if options.quick else ROOT) / "cache"
        folder = options.cache or caches / (self.module or self.name)
        chosen = [case for case in self.cases() if self._chosen(case, options)]
        results = self.read(path)
        if options.again:
            results = results.without(chosen)
        elif options.retry:
            results = replace(results, failed=())
        done = [row.case for row in results.rows] + [each.case for each in results.failed]
        left = [case for case in chosen if case not in done]
        left = left[:QUICK_CASES] if options.quick else left
        run = Run(options, folder, self.rule, _same_system(results.about, system))
        for number, case in enumerate(left):
            if number and time.monotonic() >= options.deadline_s:
                return len(left) - number
            results = self._with_row(results, case, run)
            self.write(results, path)
        return 0

    def _with_row(self, results: Results[RowT], case: CaseT, run: Run) -> Results[RowT]:
        """The results and a row of the case, or why there is none."""
        try:
            row = self.run(case, run)
            results = replace(results, rows=(*results.rows, row))
        except BricksError as error:
            failure = Failed(case, str(error))
            results = replace(results, failed=(*results.failed, failure))
        reasons = [f"failed: {each.error}" for each in results.failed if each.case == case]
        print(*_words(case), *reasons, flush=True)
        today = datetime.now(UTC).date().isoformat()
        return replace(results, about=replace(run.about, date=today))

    def _chosen(self, case: CaseT, options: Options) -> bool:
        only = set(options.only)
        return not only or self.name in only or not only.isdisjoint(_words(case))

    def write_page(self, results: Results[RowT], page: Path) -> None:
        """Write the parts of the page, and of further ones."""
        others = {page.parent / path: parts for path, parts in self.others.items()}
        for path, parts in {page: self.parts, **others}.items():
            text = with_parts(path.read_text(encoding="utf-8"), self.script, parts(results))
            path.write_text(text, encoding="utf-8")


def _same_system(about: About, system: System) -> About:
    """``about`` for more rows of ``system``; :class:`SystemExit` where it is of another one."""
    if about.key not in ("", system.key):
        raise SystemExit(f"the results so far are of {about.system}, not {system.name}: --again")
    return replace(about, system=system.name, key=system.key)


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _lines(values: Iterable[Any]) -> str:
    return ",\n".join(map(_compact, values))


def _words(case: Any) -> list[str]:
    return [str(getattr(case, part.name)) for part in fields(case)]
