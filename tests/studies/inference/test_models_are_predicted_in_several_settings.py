"""A sweep has every setting once, and goes on where a setting fails."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from factories import conv_net, mlp, save
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

from bricks.errors import NameUnknown, UsageError
from bricks.graph.model import Model
from bricks.measure.conditions import Conditions
from bricks.session.options import Options
from bricks.session.workspace import Workspace
from bricks.sources import Unread
from bricks.studies.inference.settings import DIMENSIONS, Axes, Setting, varying
from bricks.studies.inference.sweep import Sweep

NUMBERS = st.lists(st.sampled_from([None, 1, 2, 4]), min_size=1, max_size=4)
AXES = {
    "systems": st.lists(st.sampled_from([None, "zen4", "zen5"]), min_size=1, max_size=3),
    "runtimes": st.lists(st.sampled_from(["fake", "openvino"]), min_size=1),
    "quantizations": st.lists(st.sampled_from([None, "int8"]), min_size=1),
    "threads": NUMBERS,
    "shapes": st.lists(st.sampled_from([(), ("x=?x8",), ("x=?x16",)]), min_size=1, max_size=3),
    "batches": NUMBERS,
}

Read = Callable[[Setting], Sequence[Model | Unread]]


@given(st.fixed_dictionaries(AXES))
def test_every_combination_is_a_setting_once(axes: dict[str, list[object]]) -> None:
    settings = Axes(**axes).settings  # type: ignore[arg-type]  # drawn lists
    values = {tuple(getattr(setting, name) for name in DIMENSIONS) for setting in settings}
    expected = 1
    for name, key in zip(DIMENSIONS, AXES, strict=True):
        dimension = axes[key]
        expected *= len(set(dimension))
        assert {getattr(setting, name) for setting in settings} == set(dimension)
        assert (name in varying(settings)) == (len(set(dimension)) > 1)
    assert len(values) == len(settings) == expected


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with Workspace.open(tmp_path / "cache", Options(runtime="fake", threads=1)) as opened:
        yield opened


@pytest.fixture
def read(workspace: Workspace, tmp_path: Path) -> Read:
    paths = [save(conv_net(), tmp_path, "conv.onnx"), save(mlp(), tmp_path, "mlp.onnx")]

    def read_in(setting: Setting) -> Sequence[Model | Unread]:
        return [workspace.read(path, batch=setting.batch) for path in paths]

    return read_in


def test_each_model_is_predicted_in_each_setting(workspace: Workspace, read: Read) -> None:
    axes = Axes(runtimes=["fake"], threads=[2, 1], batches=[1, 8])
    result = Sweep(axes=axes, read=read).predicted(workspace)
    places = [(of.model, of.setting.threads, of.batch) for of in result.models]
    assert places == [
        (model, threads, batch)
        for model in ("conv", "mlp")
        for threads in (2, 1)
        for batch in (1, 8)
    ]
    assert (result.errors, result.dimensions) == ([], ("threads", "batch"))
    assert len(result.estimated) == len(places) and result.target is None
    assert all(
        of.sample_s.value * of.batch == pytest.approx(of.latency_s.value) for of in result.models
    )


def test_shapes_that_belong_to_a_batch_are_no_matrix() -> None:
    sizes = [(("x=?x8",), 1), (("x=?x16",), 2)]
    found = Axes(runtimes=["fake"], threads=[1, 2], sizes=sizes).settings
    assert [(of.threads, of.shapes, of.batch) for of in found] == [
        (threads, *size) for threads in (1, 2) for size in sizes
    ]


def test_a_setting_has_the_estimate_that_it_has_alone(workspace: Workspace, read: Read) -> None:
    both = Sweep(axes=Axes(runtimes=["fake"], threads=[1, 2]), read=read).predicted(workspace)
    alone = Sweep(axes=Axes(runtimes=["fake"], threads=[1]), read=read).predicted(workspace)
    assert alone.target is not None and not alone.swept
    found = [of.latency_s for of in both.models if of.setting.threads == 1]
    assert found == [of.latency_s for of in alone.models]


def test_what_is_missing_is_measured_in_turn_with_one_progress(
    workspace: Workspace, read: Read
) -> None:
    shown: list[tuple[str, float]] = []
    workspace.progress = lambda what, share: shown.append((what, share))
    Sweep(axes=Axes(runtimes=["fake"], threads=[1, 2]), read=read).predicted(workspace)
    shares = [share for what, share in shown if "decomposing" not in what]
    assert shares and 0 <= min(shares) and max(shares) <= 1
    halves = [what.startswith("fake, threads: 2") for what, _ in shown]
    assert halves == sorted(halves)


def test_a_setting_that_fails_does_not_stop_the_others(workspace: Workspace, read: Read) -> None:
    def some(setting: Setting) -> Sequence[Model | Unread]:
        if setting.batch == 8:
            return [Unread("conv", UsageError("no batch of 8")), *read(setting)[1:]]
        return read(setting)

    axes = Axes(runtimes=["fake", "none"], threads=[1], batches=[1, 8])
    result = Sweep(axes=axes, read=some).predicted(workspace)
    assert [of.interval is not None for of in result.models] == [
        True, False, False, False,
        True, True, False, False,
    ]  # fmt: skip
    assert result.errors[0] == "no batch of 8"
    assert "'none'" in result.errors[1] and len(result.errors) == 2


def test_the_only_setting_raises_its_error(workspace: Workspace, read: Read) -> None:
    with refused(NameUnknown, "nowhere"):
        Sweep(axes=Axes(runtimes=["fake"], systems=["nowhere"]), read=read).predicted(workspace)


def test_nothing_is_measured_elsewhere_nor_unless_asked(workspace: Workspace, read: Read) -> None:
    axes = Axes(runtimes=["fake"], threads=[1, 2])
    result = Sweep(axes=axes, read=read, measure=False).predicted(workspace)
    assert not result.estimated
    assert not workspace.store.measurements.costs(workspace.target.key)


def test_a_budget_is_for_all_settings(tmp_path: Path, read: Read) -> None:
    """Each part gets what is left of its share: with none, nothing is measured anywhere."""
    seen: list[float | None] = []

    class Noting(Workspace):
        def with_options(self, progress: Any = None, **changed: Any) -> Any:
            seen.append(changed["conditions"].budget_s)
            return super().with_options(progress, **changed)

    conditions = Conditions(budget_s=40.0)
    options = Options(runtime="fake", threads=1, conditions=conditions)
    with Noting.open(tmp_path / "other", options) as workspace:
        axes = Axes(runtimes=["fake"], threads=[1, 2])
        Sweep(axes=axes, read=read).predicted(workspace)
        began = Conditions(budget_s=40.0, budget_began_s=time.monotonic())
        with workspace.with_options(conditions=began) as timed:
            Sweep(axes=axes, read=read).predicted(timed)
    assert seen == [20.0, 20.0, 40.0, 20.0, 40.0]
