"""Compare programs translated from the processor's calls with the same recorded on CUDA.

    .venv/bin/python -m benchmarks gpu --only translation

Rules were written from half of the programs; the others are reported.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import onnx

from benchmarks.gpu.derived import PAGE, Derived
from benchmarks.gpu.raw import protos
from benchmarks.markdown import paragraphs, table
from benchmarks.study import ROOT, Results, Run
from bricks.backends.torch.cuda_calls import translated
from bricks.backends.torch.cuda_calls.translation import RULES
from bricks.decompose.build import build
from bricks.decompose.granularity import Granularity
from bricks.decompose.plan import Decomposition
from bricks.graph.model import Model
from bricks.graph.view import graph_of

ZOO = ROOT / "models" / "torch"
# Programs from which rules were written; no rule was changed for the others before they were
# compared for the first time.
WRITTEN_FROM = frozenset({
    "zoo_bert", "zoo_conformer_training", "zoo_diffusion", "zoo_dlrm", "zoo_gcn_training",
    "zoo_gpt2", "zoo_gpt2_training", "zoo_gpt2_training_b64", "zoo_resnet44",
    "zoo_resnet44_training", "encoder_infer_b4", "lm300m_train_fused", "wide_train_bf16",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Case:
    """A program that was recorded on a processor and on CUDA."""

    program: str


@dataclass(frozen=True, slots=True)
class Row:
    """Calls of a program on CUDA, and how many of them the translation has as equal bricks.

    ``translated`` are the calls of the translation, ``in_order`` tells whether they are the same in
    the same order. ``missing`` are operators of calls that only CUDA makes with their number,
    ``added`` those of the translation alone; ``recorded`` are the calls on the processor, ``rules``
    the titles of rules that applied.
    """

    case: Case
    recorded: int
    translated: int
    calls: int
    equal: int
    in_order: bool
    missing: Mapping[str, int]
    added: Mapping[str, int]
    rules: tuple[str, ...]

    @property
    def reported(self) -> bool:
        """Whether no rule was written from the program."""
        return self.case.program not in WRITTEN_FROM


@dataclass(frozen=True, slots=True)
class Agreement:
    """Calls of a translated program and of the recorded one, as bricks."""

    translated: int
    calls: int
    equal: int
    in_order: bool
    missing: Counter[str]
    added: Counter[str]


def agreement(translation: onnx.ModelProto, recorded: onnx.ModelProto) -> Agreement:
    """Compare the bricks of two programs."""
    ours, theirs = _keys(translation), _keys(recorded)
    ours_count, theirs_count = Counter(ours), Counter(theirs)
    return Agreement(
        translated=len(ours),
        calls=len(theirs),
        equal=sum((ours_count & theirs_count).values()),
        in_order=ours == theirs,
        missing=_operators(theirs_count - ours_count),
        added=_operators(ours_count - theirs_count),
    )


def _operators(keys: Counter[tuple[str, str]]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for (_, operator), count in keys.items():
        counts[operator] += count
    return counts


def _keys(proto: onnx.ModelProto) -> list[tuple[str, str]]:
    """The key and the operator of each call in order."""
    plan = _decomposed(proto).plan
    operators = (node.op_type for node in proto.graph.node)
    return [
        (occurrence.brick, operator)
        for occurrence, operator in zip(plan.occurrences, operators, strict=True)
    ]


def _decomposed(proto: onnx.ModelProto) -> Decomposition:
    skeleton = proto.SerializeToString(deterministic=True)
    digest = "m1-" + hashlib.sha256(skeleton).hexdigest()[:16]
    model = Model(proto.graph.name, Path(), skeleton, (), digest)
    return build(model, graph_of(proto), Granularity.parse("executed"))


@cache
def on_cuda() -> Mapping[str, onnx.ModelProto]:
    """Programs as recorded on CUDA."""
    return protos(("programs", "h200-programs"))


@cache
def on_processor() -> Mapping[str, onnx.ModelProto]:
    """The same programs as recorded on a processor: from an archive, else from the zoo."""
    archived = protos(("processor-programs",))
    files = {name: ZOO / f"torch_{name.removeprefix('zoo_')}.onnx" for name in on_cuda()}
    zoo = {
        name: onnx.load(file, load_external_data=False)
        for name, file in files.items()
        if name.startswith("zoo_") and file.exists()
    }
    return {**zoo, **archived}


def cases() -> list[Case]:
    """All programs in both forms."""
    return [Case(name) for name in sorted(on_cuda().keys() & on_processor().keys())]


def run(case: Case, run: Run) -> Row:
    """The row of a program."""
    recorded = on_processor()[case.program]
    translation = translated(recorded)
    found = agreement(translation.proto, on_cuda()[case.program])
    return Row(
        case, len(recorded.graph.node), found.translated, found.calls, found.equal, found.in_order,
        dict(found.missing), dict(found.added),
        tuple(note.partition(":")[0] for note in translation.notes),
    )  # fmt: skip


def parts(results: Results[Row]) -> dict[str, str]:
    """Both halves in numbers, and each program."""
    rows = sorted(results.rows, key=lambda row: (not row.reported, row.case.program))
    return {
        "translation": paragraphs(_summary(rows), _programs(rows)),
        "translation_rules": _rules(rows),
    }


def _rules(rows: Sequence[Row]) -> str:
    """All rules with their reasons, and the number of programs to which each applies."""
    lines = (
        [rule.title, rule.reason, str(sum(rule.title in row.rules for row in rows))]
        for rule in RULES
    )
    return table(["rule", "why CUDA makes other calls", "programs"], lines, "ll")


def _summary(rows: Sequence[Row]) -> str:
    halves = {
        "reported": [row for row in rows if row.reported],
        "rules written from them": [row for row in rows if not row.reported],
    }
    head = ["programs", "number", "equal in order", "calls on CUDA", "calls with an equal brick"]
    return table(head, (_line(name, of) for name, of in halves.items()))


def _line(name: str, rows: Sequence[Row]) -> list[str]:
    calls, equal = sum(row.calls for row in rows), sum(row.equal for row in rows)
    return [
        name, str(len(rows)), str(sum(row.in_order for row in rows)), f"{calls:,}",
        f"{equal / max(1, calls):.2%}",
    ]  # fmt: skip


def _programs(rows: Sequence[Row]) -> str:
    lines = (
        [
            row.case.program, "yes" if row.reported else "no", str(row.recorded), str(row.calls),
            str(row.equal), _difference(row),
        ]
        for row in rows
    )  # fmt: skip
    head = ["program", "reported", "on the processor", "on CUDA", "equal", "difference"]
    return table(head, lines, "llrrrl")


def _difference(row: Row) -> str:
    """Operators with the most calls that differ, those of CUDA first."""
    sides = (("CUDA", row.missing), ("translated", row.added))
    texts = [f"{side}: {_most(counts)}" for side, counts in sides if counts]
    return "; ".join(texts)


def _most(counts: Mapping[str, int]) -> str:
    most = sorted(counts.items(), key=lambda item: -item[1])[:3]
    rest = len(counts) - len(most)
    names = ", ".join(f"{count} `{operator}`" for operator, count in most)
    return f"{names}, {rest} more" if rest else names


BENCHMARKS = (Derived("translation", PAGE, Row, cases, run, parts),)
