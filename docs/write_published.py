"""Write ``published.md``: the systems whose measurements ship, from the index of their files.

Run it after ``bricks cache publish``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bricks.store.published_index import IndexEntry, read_index

ROOT = Path(__file__).resolve().parent.parent
PLACE = ROOT / "cache" / "published"
PAGE = ROOT / "docs" / "published.md"

# Systems of figures on other pages.
UNPUBLISHED = ("intel-xeon-6-207-2c",)

BEGINNING = """\
# Published measurements

bricks ships measurements of its models on the systems below, so `predict`, `advise`, `explain`,
`diff` and `report` answer about these systems where nothing was measured yet:

```console
bricks systems
bricks predict squeezenet --on {system}
bricks advise squeezenet --slo 20ms
```

A model of which all [bricks](glossary.md#brick) are published gets an estimate from measurements;
bricks that are missing are predicted, and the interval tells. On a host of the same kind, your own
measurements count before published ones, and `measure` and `compare` never take published ones for
measured. Published files are read where they lie, and nothing of them gets into your cache.
`BRICKS_PUBLISHED` names another folder; `BRICKS_PUBLISHED=/dev/null` leaves them out.

Of a model that is unlike the published ones, most of the latency is predicted, with errors that its
interval tells. Eighteen architectures exported from PyTorch (`tools/exported_models.py`), predicted
on intel-xeon-6-167-2c from its published file alone and then run there, came out 8.4 % off in the
median with one thread (15 of 18 inside the interval) and 8.0 % with two (18 of 18). The worst are
those with kernels of shapes that no shipped model has: GPT-NeoX (1.6 times too high) and ConvBERT
(0.6 times). Measuring their bricks brings the median to 2.5 %.

## Systems
"""

ENDING = """\

Written by `docs/write_published.py` from the index that `bricks cache publish` writes. *Disturbed*
is the share of rounds in which other work delayed the threads or the machine changed
its speed; such rounds do not count. *Noise* is the median difference between two halves of the runs
of one model. *Inside* is the share of models whose run lies in the interval of their estimate.
Every model was run whole beside its bricks; errors are |estimate / run - 1|, and the geometric mean
is that of estimate / run. Other pages name systems as this one does, and one that published
nothing: {unpublished}. MXNet lacks
operators of 16 of the zoo's models (`bricks cache publish --runtime mxnet` names them), and
OpenVINO refuses one. Of the others those are published that were measured whole: in OpenVINO these
are most of the models that take less than 60 ms with one thread, and in MXNet those without an
error function, whose measurements did not tell [sizes](../research/mxnet.md#how-it-is-timed) apart.

## Contribute a system

    bricks cache publish
    bricks cache publish --runtime mxnet
    bricks cache publish --runtime openvino

watches the host for other work and refuses a busy one, measures the zoo with one and two threads
into a cache of its own, runs every model whole beside its bricks, writes a results file, what is
learned from it (`.learned.npz`) and its entry in the index (`cache/published/index.json`), and
reads the results back. It takes a quarter of an hour for each number of threads, with MXNet or
OpenVINO three to five times that; after an interruption, the same command goes on. What the file of
your system holds of other runtimes stays. Then write this page again with
`docs/write_published.py`, and send the four files as a pull request.

**What can be checked.** The digest in the index is that of the file. Keys of systems, targets and
bricks follow from their content (`bricks cache import` computes them again), plans name only
bricks that are there, and their values fit. Errors and noise in the index follow from the file,
which holds the runs of whole models too.

**What cannot be checked.** No check shows that latencies are honest, or that a host was as quiet as
its numbers are even. So a reviewer compares the file with those of similar systems
(`bricks diff OLD NEW`), asks for the reason of any brick that is off by more than its system's
peaks, and merges files of people who can be asked. A file whose index entry does not fit, that is
cut off, or of a later format, is left out by name, and the others serve: see
[formats](formats.md#published-files).
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


def _rows(entry: IndexEntry) -> list[str]:
    found = []
    for target in sorted(entry.targets, key=lambda t: (t.runtime.backend, t.runtime.threads)):
        facts, runtime = entry.about["targets"][target.key], target.runtime
        cells = [
            target.system.name,
            str(target.system.identity["cpu"]),
            f"{runtime.backend} {runtime.version}",
            str(runtime.threads),
            f"{facts['date']}, bricks {facts['package']}",
            str(facts["bricks"]),
            str(facts["models"]),
            *(
                f"{100 * facts[name]:.1f} %"
                for name in (
                    "disturbed_share", "noise_floor", "median_abs_error", "p95_abs_error",
                    "max_abs_error",
                )
            ),
            f"{facts['geomean_ratio']:.3f}",
            f"{100 * facts['interval_hit_rate']:.1f} %",
        ]  # fmt: skip
        found.append(f"| {' | '.join(cells)} |")
    return found


if __name__ == "__main__":
    PAGE.write_text(page(read_index(PLACE)), encoding="utf-8")
