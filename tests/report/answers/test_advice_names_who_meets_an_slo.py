"""The first line of advice: who meets the SLO, on how many hosts, who is undecided."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from store_examples import make_target

from bricks.analysis.advice import AdvisedSetting, Candidate, Deciding, SloAdvice, best_first
from bricks.compose.estimate import MEASURED
from bricks.compose.slo import MeetsSlo
from bricks.report.advice import advice_text
from bricks.studies.serving.hosts import HostRange
from bricks.units.facts import facts
from bricks.units.interval import Interval

ONE, TWO, OPEN, NONE = (
    HostRange(1, 1), HostRange(2, 2), HostRange(1, 2), HostRange(None, None),
)  # fmt: skip
MEASURE_C4 = Deciding(models=("c4",), command="bricks measure c4", system=None, wall_s=8.2)


def setting(model: str, hosts: HostRange | None, system: str = "lab") -> AdvisedSetting:
    return AdvisedSetting(
        model=model,
        target=make_target(system),
        batch=1,
        latency_s=Interval(0.015, 0.014, 0.016),
        provenance=MEASURED,
        meets_slo=MeetsSlo.YES if hosts is None else hosts.meets_slo,
        hosts=hosts,
    )


def candidate(model: str, *hosts: HostRange | None, system: str = "lab") -> Candidate:
    return Candidate(model=model, settings=tuple(setting(model, of, system) for of in hosts))


def advice(*candidates: Candidate, **changes: object) -> SloAdvice:
    of = SloAdvice(slo_s=0.02, percentile=99.0, qps=50.0, candidates=candidates)
    return replace(of, **changes)  # type: ignore[arg-type]  # of fields of SloAdvice


def test_all_of_a_few_candidates_are_named() -> None:
    found = advice(
        candidate("c1", ONE), candidate("c2", ONE), candidate("c3", TWO), candidate("c4", OPEN),
        candidate("c5", NONE), deciding=(MEASURE_C4,),
    )  # fmt: skip
    assert advice_text(found) == (
        "c1 and c2 meet 20 ms at 50/s (p99) on one host on lab; c3 needs two; c4 needs one or"
        " two hosts: `bricks measure c4` (8 s) decides; c5 does not."
    )


def test_the_best_system_is_named_and_where_a_measurement_runs() -> None:
    rivals = Candidate(model="c1", settings=(setting("c1", TWO), setting("c1", ONE, "farm")))
    there = replace(MEASURE_C4, system="farm", wall_s=None)
    unsure = candidate("c4", HostRange(1, None))
    assert advice_text(advice(rivals, unsure, deciding=(there,))) == (
        "c1 meets 20 ms at 50/s (p99) on one host, fastest on farm; c4 is uncertain:"
        " `bricks measure c4` on farm decides."
    )


def test_none_that_meets_it_is_said_once() -> None:
    assert advice_text(advice(candidate("c1", NONE), candidate("c2", NONE))) == (
        "c1 and c2 do not meet 20 ms at 50/s (p99) on lab."
    )
    assert advice_text(advice(candidate("c1", None), percentile=None, qps=None)) == (
        "c1 meets 20 ms on lab."
    )


def test_many_candidates_are_counted_and_the_best_named() -> None:
    found = [candidate(f"c{n}", ONE) for n in range(4)] + [candidate(f"d{n}", OPEN) for n in "12"]
    assert advice_text(advice(*found)) == (
        "4 of 6 candidates meet 20 ms at 50/s (p99), best c0 on lab (15.0 ms, ±7 %, one host);"
        " 2 are uncertain."
    )


HOSTS = st.builds(
    lambda fewest, more: HostRange(fewest, None if fewest is None or more is None
                                   else fewest + more),
    st.none() | st.integers(1, 12), st.none() | st.integers(0, 3),
)  # fmt: skip


@given(st.lists(st.lists(HOSTS, min_size=1, max_size=3), min_size=1, max_size=5))
def test_the_sentence_says_what_the_facts_say(found: list[list[HostRange]]) -> None:
    of = advice(
        *sorted((candidate(f"c{n}", *hosts) for n, hosts in enumerate(found)), key=best_first)
    )
    text = advice_text(of)
    for row in facts(of)["candidates"]:
        (clause,) = (part for part in text.split(";") if row["model"] in part)
        if row["meets_slo"] == "uncertain":
            assert row["hosts"] is None
            assert "uncertain" in clause or " hosts" in clause
            assert "meet" not in clause
        elif row["meets_slo"] == "no":
            assert "not" in clause
        else:
            assert row["hosts"] == row["hosts_low"] == row["hosts_high"]
            assert "meet" in clause or "need" in clause
            assert "one" in clause or row["hosts"] > 1


@pytest.mark.parametrize("hosts", [ONE, TWO, OPEN, NONE, HostRange(1, None)])
def test_a_candidate_is_as_decided_as_its_best_setting(hosts: HostRange) -> None:
    worse = candidate("c", HostRange(None, None), hosts)
    assert (worse.meets_slo, worse.range) == (hosts.meets_slo, hosts)
    assert worse.best is not None and worse.best.hosts == hosts
