"""Repeats the evaluation of the DLBricks paper: MXNet and ONNX Runtime, G = 1 … 10, `executed`.

Writes research/paper.md with its figures, and the raw results.

    .venv/bin/python benchmarks/paper.py --cache cache/paper

Fifty-five models from MXNet are run on each runtime at each granularity, batch 1, one thread (MXNet
with fusions, which the paper's MXNet did not have, at `executed` alone); results go to
benchmarks/results/paper.json after each model. With ``--cache``, an interrupted run is continued,
and a finished one measures nothing again; without it, the cache is temporary. ``--write-only``
writes the page from the results, and ``--tables`` prints the tables with a row for each model,
which the page leaves out. Run nothing else meanwhile.

A run takes about half an hour on each runtime. Rounds are few (4; up to 12 where latencies vary),
since errors of single models are averaged over all. A model with a latency of W seconds costs about
8 W at each granularity (4 rounds of a warm-up and a sample), less for bricks that are known; the
whole model costs 8 W once for all numbers of layers, and once for `executed`. Loading takes half a
second to two seconds each time. With half of the bricks known, that is 60 W + 12 s for a model and
runtime, with 55 models of 0.3 s on average.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from benchmarks.evaluation import figures, page, results
from benchmarks.evaluation.measuring import Benches, Evaluation, Settings, dated, note
from benchmarks.evaluation.results import EXECUTED, Results, ResultsError
from bricks import BricksError, StopRule

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "paper.json"
DOCS = ROOT / "research"
# Quick runs go here, so that nobody mistakes their results for the others.
ASIDE = ROOT / "build" / "paper"

# MXNet as at the time of the paper, and with its later fusions, which change the layers of a model.
RUNTIMES = ("mxnet-unfused", "onnxruntime", "mxnet")
WHOLE_RUNTIMES = ("mxnet",)

# The zoo's models that stand for the paper's, task by task: the same networks where it has them,
# and relatives, so that there are fifty networks where the paper has fifty trained models.
MODELS = (
    "gluon_alexnet", "gluon_densenet121", "gluon_densenet169", "gluon_googlenet",
    "gluon_inceptionv3", "gluon_mobilenet025", "gluon_mobilenet10", "gluon_mobilenetv2_05",
    "gluon_mobilenetv2_10", "gluon_mobilenetv3_large", "gluon_resnet18_v1", "gluon_resnet34_v1",
    "gluon_resnet50_v1", "gluon_resnet101_v1", "gluon_resnet152_v1", "gluon_resnet50_v1b",
    "gluon_resnet50_v2", "gluon_resnet101_v2", "gluon_resnet152_v2", "gluon_resnext50_32x4d",
    "gluon_resnext101_32x4d", "gluon_se_resnet50_v1", "gluon_se_resnext50_32x4d", "gluon_senet_154",
    "gluon_squeezenet10", "gluon_squeezenet11", "gluon_vgg16", "gluon_vgg19",
    "mx_wide_resnet50_2",
    "mx_colorization", "mx_cyclegan", "mx_cyclegan_6", "mx_edsr", "mx_pix2pix", "mx_srcnn",
    "mx_srgan", "mx_style_transfer", "mx_vdsr",
    "gluon_ssd_300_resnet34", "gluon_ssd_300_vgg16", "gluon_ssd_512_mobilenet10",
    "gluon_ssd_512_vgg16", "gluon_yolo3_mobilenet10", "mx_yolo2_tiny",
    "gluon_mobile_pose_resnet18_v1b", "gluon_monodepth2_resnet18",
    "gluon_simple_pose_resnet18_v1b", "gluon_simple_pose_resnet50_v1d", "mx_depth_resnet50",
    "mx_face_alignment", "mx_face_landmarks",
    "gluon_fastscnn", "gluon_icnet_resnet50", "mx_dilated_vgg16", "mx_unet",
)  # fmt: skip
GRANULARITIES = (*map(str, range(1, 11)), EXECUTED)
RULE = StopRule(precision=0.03, min_rounds=4, max_rounds=12, passes=1)

QUICK = ("1", "2", "5", "10", EXECUTED)
QUICK_RULE = StopRule(precision=0.5, min_rounds=2, max_rounds=2, passes=1)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and write the raw results and the page; the exit status."""
    options = _parser().parse_args(arguments)
    aside = options.quick
    path = options.results or (ASIDE / "paper.json" if aside else RESULTS)
    docs = options.docs or (ASIDE if aside else DOCS)
    try:
        if options.tables:
            print(page.tables(results.read(path)))
            return 0
        for folder in (path.parent, docs):  # an unwritable folder is an error before measuring
            folder.mkdir(parents=True, exist_ok=True)
        found = results.read(path) if options.write_only else measure(options, path)
        publish(found, docs)
    except (BricksError, OSError, ResultsError) as error:
        note(f"paper: {error}")
        return 1
    except KeyboardInterrupt:
        resumed = f"--cache {options.cache}" if options.cache else "--cache, which this run had not"
        note(f"paper: interrupted; {path} holds what was finished; to go on, give {resumed}")
        return 130
    note(f"paper: {docs / 'paper.md'}")
    return 1 if found.failures() else 0


def measure(options: argparse.Namespace, path: Path) -> Results:
    """Run everything that ``options`` ask for; ``path`` is written after each model."""
    usual = QUICK if options.quick else GRANULARITIES
    settings = Settings(
        models=tuple(options.models or MODELS),
        runtimes=tuple(dict.fromkeys(options.runtimes)),
        granularities=_ordered(options.granularities or usual),
        rule=QUICK_RULE if options.quick else RULE,
        threads=options.threads,
        quick=options.quick,
        retry=options.retry,
        whole_runtimes=WHOLE_RUNTIMES,
    )
    before = None
    with suppress(ResultsError):
        before = results.read(path)
    with ExitStack() as stack:
        cache = options.cache or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        benches = stack.enter_context(Benches(cache, settings))
        evaluation = Evaluation(settings, benches)
        found = evaluation.run(note, lambda so_far: results.write(so_far, path))
        found = dated(found, before, measured=evaluation.measured_anything)
        results.write(found, path)
    return results.read(path)


def publish(found: Results, docs: Path) -> None:
    """Write the page and its figures."""
    page.write(found, figures.draw(found, docs / "figures"), docs / "paper.md")


def _ordered(granularities: Sequence[str]) -> tuple[str, ...]:
    """Numbers ascending, then ``executed``; anything else stays, to be refused by name."""
    numbers = sorted({cut for cut in granularities if cut.isdecimal()}, key=int)
    return (*numbers, *dict.fromkeys(cut for cut in granularities if not cut.isdecimal()))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", help="zoo names or files; default: 55 from MXNet")
    parser.add_argument("--runtimes", nargs="+", default=list(RUNTIMES))
    parser.add_argument("--granularities", nargs="+", help="numbers of layers, and executed")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--cache", type=Path, help="a folder that is kept, to go on from later")
    parser.add_argument("--retry", action="store_true", help="measure again what failed before")
    parser.add_argument("--quick", action="store_true", help="see whether all works: build/paper/")
    parser.add_argument("--write-only", action="store_true", help="write the page, measure nothing")
    parser.add_argument("--tables", action="store_true", help="print a row for each model, and end")
    parser.add_argument("--results", type=Path, help="file of raw results")
    parser.add_argument("--docs", type=Path, help="folder of the page")
    return parser


if __name__ == "__main__":
    sys.exit(main())
