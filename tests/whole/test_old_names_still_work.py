"""Names of the version before: each leads to what it meant, and says what it is called now."""

import dataclasses

import pytest

import bricks
from bricks.backends import added
from bricks.backends.base import BackendInfo


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Compared", "ModelComparison"),
        ("Contrast", "TargetDiff"),
        ("NotCompared", "ComparisonFailure"),
        ("side_by_side", "diff_targets"),
    ],
)
def test_a_name_of_the_package(old: str, new: str) -> None:
    with pytest.warns(DeprecationWarning, match=rf"bricks\.{old}\b.*\b{new}\b"):
        found = getattr(bricks, old)
    assert found is getattr(bricks, new)
    assert new in bricks.__all__ and old not in bricks.__all__


def test_fields_of_conditions() -> None:
    with pytest.warns(DeprecationWarning, match=r"Conditions\.most_bricks\b.*\bmax_bricks\b"):
        given = bricks.Conditions(most_bricks=7)  # type: ignore[call-arg]  # old
    assert given.max_bricks == 7
    with pytest.warns(DeprecationWarning, match="max_eviction_bytes"):
        other = dataclasses.replace(given, most_ballast_bytes=9)  # type: ignore[call-arg]  # old
    assert (other.max_bricks, other.max_eviction_bytes) == (7, 9)
    with pytest.warns(DeprecationWarning, match="max_weight_bytes"):
        assert other.most_weight_bytes == other.max_weight_bytes  # type: ignore[attr-defined]  # old


def test_fields_of_what_a_backend_tells() -> None:
    with pytest.warns(DeprecationWarning, match="timed"):
        told = BackendInfo("mine", "1", "none", real=False)  # type: ignore[call-arg]  # old
    assert told == BackendInfo("mine", "1", "none", timed=False)
    with pytest.warns(DeprecationWarning, match="bounded_memory"):
        assert told.frugal is True  # type: ignore[attr-defined]  # old


def test_methods_of_the_stop_rule() -> None:
    rule = bricks.StopRule()
    with pytest.warns(DeprecationWarning, match="min_rounds_for"):
        assert rule.least_rounds(0.5) == rule.min_rounds_for(0.5) == 4
    with pytest.warns(DeprecationWarning, match="max_rounds_for"):
        assert rule.most_rounds(0.5) == rule.max_rounds_for(0.5) == 12


def test_a_field_of_what_was_measured(tmp_path: object) -> None:
    with bricks.Bench(f"{tmp_path}/cache", runtime="fake") as bench:
        measured, compared = bench.measure([]), bench.compare([])
    for found in (measured, compared):
        with pytest.warns(DeprecationWarning, match=r"\bballast_short\b.*\beviction_short\b"):
            assert found.ballast_short is found.eviction_short is False  # type: ignore[attr-defined]  # old


def test_a_field_that_never_was_is_refused() -> None:
    with pytest.raises(TypeError, match="most_everything"):
        bricks.Conditions(most_everything=1)  # type: ignore[call-arg]  # old


def test_what_a_bench_has_learned(tmp_path: object) -> None:
    with bricks.Bench(f"{tmp_path}/cache", runtime="fake") as bench:
        with pytest.warns(DeprecationWarning, match=r"Bench\.knowledge\b.*\blatency_model\b"):
            found = bench.knowledge()
        assert found is bench.latency_model()


def test_a_method_of_backends_of_other_packages() -> None:
    class Offer:
        def describe(self) -> BackendInfo:
            return BackendInfo("old", "1", "none", timed=False)

        def create(self, **_: object) -> object:
            return Old()

    class Old:
        loaders = 1

        def minds_signs(self, operator: str) -> bool:
            return operator == "Relu"

    with pytest.warns(DeprecationWarning, match="sign_sensitive"):
        made = added.create(
            Offer(),
            "old",
            threads=1,
            seed=0,
            workers=1,
            optimization="all",  # type: ignore[arg-type]  # old
        )
    assert made.sign_sensitive("Relu") and not made.sign_sensitive("Conv")
