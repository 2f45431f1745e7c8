"""What a target is called by people: any words that only it has."""

from __future__ import annotations

from dataclasses import replace

import pytest
from refusals import refused
from store_examples import make_target

from bricks.errors import UsageError
from bricks.system.names import names_of, target_named
from bricks.system.target import Target

LAB, FARM = make_target("lab"), make_target("farm", threads=4)
TWO = make_target("lab", threads=2)
BASIC = Target(LAB.system, replace(LAB.runtime, optimization="basic", brick_optimization="basic"))
NEWER = Target(LAB.system, replace(LAB.runtime, version="1.1"))
ALL = [LAB, FARM, TWO, BASIC, NEWER]


def test_names_distinguish_targets() -> None:
    names = names_of(ALL)
    assert [names[t.key] for t in ALL] == [
        "lab/fake-1.0/1-thread",
        "farm/fake-1.0/4-threads",
        "lab/fake-1.0/2-threads",
        "lab/fake-1.0/1-thread/optimization=basic/bricks=basic",
        "lab/fake-1.1/1-thread",
    ]
    for target in [FARM, TWO, BASIC, NEWER]:
        assert target_named(names[target.key], ALL) == target


def test_a_whole_name_names_its_target_also_where_others_have_more_words() -> None:
    assert target_named("lab/fake-1.0/1-thread", ALL) == LAB


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("farm", FARM),
        ("2-threads", TWO),
        ("4-thread", FARM),
        ("4-threads / farm", FARM),
        ("fake-1.1", NEWER),
        ("1.1/lab", NEWER),
        ("optimization=basic", BASIC),
        ("bricks=basic/fake", BASIC),
        ("optimization=all/1.0/1-thread", LAB),
        (NEWER.key, NEWER),
        (NEWER.key[:9], NEWER),
        (f"{FARM.system.key}", FARM),
        ("arm", FARM),
        ("Farm/4-threads", FARM),
    ],
)
def test_words_that_a_single_target_has_name_it(text: str, target: Target) -> None:
    assert target_named(text, ALL) == target


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("lab", "'lab' may be lab/fake-1.0/1-thread, lab/fake-1.0/1-thread/optimization=basic"),
        ("t1-", "and 2 more ('bricks systems'): add words, with '/' between them"),
        ("moon", "no target of the cache is called 'moon'; it knows farm/fake-1.0/4-threads"),
        ("lab/4-threads", "no target of the cache is called 'lab/4-threads'"),
        ("", "no target of the cache is called ''"),
        ("farm/", "no target of the cache is called 'farm/'"),
    ],
)
def test_words_of_no_or_several_targets_are_answered_with_names(text: str, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        target_named(text, ALL)
    assert said in str(refused.value)


def test_an_empty_cache_says_so() -> None:
    with refused(UsageError, "lab"):
        target_named("lab", [])


def test_hosts_of_one_name_are_distinguished_by_their_keys() -> None:
    twin = Target(replace(LAB.system, identity={"cpu": "other", "cores": 8}), LAB.runtime)
    names = names_of([LAB, twin])
    assert names[twin.key] == f"{twin.system.key}/fake-1.0/1-thread"
    assert target_named(names[twin.key], [LAB, twin]) == twin
    elsewhere = Target(LAB.system, replace(LAB.runtime, provider="gpu"))
    assert names_of([LAB, elsewhere]) == {t.key: t.key for t in (LAB, elsewhere)}
    assert target_named("gpu", [LAB, elsewhere]) == elsewhere


def test_a_host_may_be_called_anything() -> None:
    odd = Target(replace(LAB.system, name="rack 7/left"), LAB.runtime)
    assert names_of([odd])[odd.key] == "rack 7-left/fake-1.0/1-thread"
    assert target_named("rack 7-left/1-thread", [odd]) == odd


def test_a_python_of_the_user_is_in_the_name() -> None:
    users = Target(LAB.system, replace(LAB.runtime, python="3.13"))
    assert names_of([LAB, users])[users.key] == "lab/fake-1.0/1-thread/python-3.13"
    assert target_named("python-3.13", [LAB, users]) == users
    assert target_named("lab/fake-1.0/1-thread", [LAB, users]) == LAB
