"""A system is named by a word of its name; an error lists such words."""

from hypothesis import given
from hypothesis import strategies as st

from bricks.session.targets import short_names


def test_the_last_word_that_no_other_has_is_enough() -> None:
    known = ("amd-epyc-zen4-2c", "amd-epyc-zen5-2c", "intel-xeon-6-167-2c", "nvidia-h100")
    assert list(short_names(known).values()) == ["zen4", "zen5", "intel", "h100"]
    assert short_names(("host", "host-2")) == {"host": "host", "host-2": "host-2"}


@given(st.sets(st.from_regex(r"[a-c]{1,2}(-[a-c0-9]{1,2}){0,3}", fullmatch=True), max_size=6))
def test_a_short_name_names_one_system(names: set[str]) -> None:
    for name, short in short_names(names).items():
        assert short in name
        assert short == name or [other for other in names if short in other] == [name]
