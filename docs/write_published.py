"""Write ``published.md``: the systems whose measurements ship, from the index of their files.

Run it after ``bricks cache publish``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bricks.store.published_index import IndexEntry, read_index
from bricks.system import System

ROOT = Path(__file__).resolve().parent.parent
PLACE = ROOT / "cache" / "published"
PAGE = ROOT / "docs" / "published.md"

# Systems of figures on other pages.
UNPUBLISHED = ("intel-xeon-6-207-2c",)

BEGINNING = """\
# Published measurements

bricks ships measurements of its models on the systems below. So `predict`, `advise`, `explain`,
`diff` and `report` answer about them before anything was measured:

```console
bricks systems
bricks predict squeezenet --on {system}
bricks advise squeezenet --slo 20ms
```

If all [bricks](glossary.md#brick) of a model are published, its estimate comes from measurements.
Missing bricks are predicted, and the interval tells. On a host of the same kind, your own
measurements count first; `measure` and `compare` never take published ones for measured. Published
files are read where they lie, and never copied into your cache.

Models unlike the published ones are mostly predicted. Eighteen architectures exported from PyTorch
(`tools/exported_models.py`) were predicted on intel-xeon-6-167-2c from its published file alone,
and then run there. The median error was 8.4 % with one thread (15 of 18 inside the interval) and
8.0 % with two (18 of 18). Measuring their bricks brings it to 2.5 %.

## Systems
"""

ENDING = """\

Written by `docs/write_published.py` from the index that `bricks cache publish` writes. *Disturbed*:
rounds that were noisy and count less. *Noise*: the median difference between two halves of the runs
of one model. *Inside*: models whose run lies in the interval of their estimate. Every model was run
whole next to its bricks; errors are |estimate / run - 1|, and the geometric mean is that of
estimate / run. Research names one more system, which published nothing: {unpublished}. MXNet lacks
operators of 16 models and OpenVINO refuses one. Of the others, published are the models that were
measured whole: most of those below 60 ms with OpenVINO, and with MXNet those without an
[error function](../research/mxnet.md#how-it-is-timed).

The two GPUs have calls of PyTorch programs, measured in walks, hot and cold. Their files come from
the raw data of another program (`benchmarks/results/gpu`), not from `bricks cache publish`; errors
stand [in research](../research/gpu.md). Cards that nobody measured (`--on a100`) follow from these
and from data sheets ([GPUs](guides/gpus.md)).

## Contribute a system

    bricks cache publish
    bricks cache publish --runtime openvino

refuses a busy host, measures the zoo with one and two threads into a cache of its own, and runs
every model whole. It then writes a results file, a file of what is learned from it, and an entry in
`cache/published/index.json`. ONNX Runtime takes a quarter of an hour for each number of threads,
other runtimes three to five times that. After an interruption, the same command goes on. Run
`docs/write_published.py`, and send the four files as a pull request.

Digests, keys and plans are checked when a file is read; a file that is cut off, altered or of a
later format is left out by name ([formats](formats.md#published-files)). No check shows that
latencies are honest, or that a host was quiet. So a reviewer compares the file with those of
similar systems (`bricks diff`), and merges files of people who can be asked.
"""


def page(entries: Sequence[IndexEntry]) -> str:
    """The text of the page."""
    head = (
        "| system | processor | runtime | threads | measured | bricks | models | disturbed | noise"
        " | median error | 95th percentile | worst | geometric mean | inside |"
    )
    rule = "|---|---|---|--:|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
    rows = [row for entry in entries for row in _rows(entry)]
    system = entries[0].targets[0].system.name if entries else "NAME"
    table = "\n".join([head, rule, *rows]) if rows else "No system yet."
    ending = ENDING.replace("{unpublished}", ", ".join(UNPUBLISHED))
    return BEGINNING.format(system=system) + "\n" + table + "\n" + ending


def _processor(system: System) -> str:
    """The GPU whose times are measured, or else the processor."""
    accelerator = system.accelerator
    return str(system.identity["cpu"]) if accelerator is None else accelerator.name


def _rows(entry: IndexEntry) -> list[str]:
    found = []
    for target in sorted(entry.targets, key=lambda t: (t.runtime.backend, t.runtime.threads)):
        facts, runtime = entry.about["targets"][target.key], target.runtime
        cells = [
            target.system.name,
            _processor(target.system),
            f"{runtime.backend} {runtime.version}",
            str(runtime.threads),
            f"{facts['date']}, bricks {facts['package']}",
            str(facts["bricks"]),
            str(facts["models"]),
            *(
                f"{100 * facts[name]:.1f} %" if name in facts else "–"
                for name in (
                    "disturbed_share", "noise_floor", "median_abs_error", "p95_abs_error",
                    "max_abs_error",
                )
            ),
            f"{facts['geomean_ratio']:.3f}" if "geomean_ratio" in facts else "–",
            f"{100 * facts['interval_hit_rate']:.1f} %" if "interval_hit_rate" in facts else "–",
        ]  # fmt: skip
        found.append(f"| {' | '.join(cells)} |")
    return found


if __name__ == "__main__":
    PAGE.write_text(page(read_index(PLACE)), encoding="utf-8")
