from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from factories import conv_net, mlp, save

import bricks

PNG = b"\x89PNG"


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[bricks.Bench]:
    cache = tmp_path_factory.mktemp("cache")
    with bricks.Bench(cache, runtime="fake", threads=1) as bench:
        yield bench


@pytest.fixture(scope="module")
def models(bench: bricks.Bench, tmp_path_factory: pytest.TempPathFactory) -> list[bricks.Model]:
    folder = tmp_path_factory.mktemp("models")
    return [
        bench.read(save(mlp(), folder, "mlp.onnx")),
        bench.read(save(conv_net(blocks=1, size=8), folder, "net.onnx")),
    ]


def texts(plot: bricks.Plot) -> set[str]:
    """The words of a plot: labels of ticks and axes, title and legend."""
    (axes,) = plot.figure.axes
    ticks = [label.get_text() for label in axes.get_yticklabels()]
    legends = [text.get_text() for of in plot.figure.legends for text in of.get_texts()]
    return {*ticks, *legends, axes.get_title(loc="left"), axes.get_xlabel(), axes.get_ylabel()}


def shown(plot: bricks.Plot, folder: Path) -> bool:
    """Whether a notebook shows a plot, and its file is a picture."""
    plot.save(folder / "plot.svg")
    is_png = plot._repr_png_().startswith(PNG)
    return is_png and "<svg" in (folder / "plot.svg").read_text(encoding="utf-8")


def test_estimates_have_rows_runs_and_a_bound(
    bench: bricks.Bench, models: list[bricks.Model], tmp_path: Path
) -> None:
    estimates = {model.name: bench.predict(model) for model in models}
    plain = bricks.plot_estimates(estimates, title="here")
    assert {"mlp", "net", "here"} <= texts(plain)
    assert not {"run", "bound"} & texts(plain)
    plot = bricks.plot_estimates(estimates, runs_s={"net": 0.001}, bound_s=0.002)
    assert {"run", "bound"} <= texts(plot)
    assert shown(plot, tmp_path)


def test_comparisons_and_operators_name_what_they_show(
    bench: bricks.Bench, models: list[bricks.Model], tmp_path: Path
) -> None:
    plot = bricks.plot_comparison(bench.compare(models))
    assert {"mlp", "net"} <= texts(plot)
    assert shown(plot, tmp_path)
    explanation = bricks.explain(bench.workspace, models[1], measure=False)
    operators = bricks.plot_operators(explanation)
    assert explanation.operators[0].operator in texts(operators)
    assert shown(operators, tmp_path)


def test_curves_and_points_have_their_axes(tmp_path: Path) -> None:
    band = {1.0: bricks.Interval(2, 1, 3), 2.0: bricks.Interval(3, 2, 4)}
    curves = bricks.plot_curves({"p50": band}, x="rate", y="latency, ms", bound=3.5)
    assert {"p50", "bound", "rate", "latency, ms"} <= texts(curves)
    points = bricks.plot_points({"one": [(1, 2), (2, 3)], "none": []}, x="weights", y="ms")
    assert {"one", "none", "weights", "ms"} <= texts(points)
    assert shown(curves, tmp_path) and shown(points, tmp_path)
