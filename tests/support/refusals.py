"""What tests ask of a refusal: its type and the facts that it names, never how it words them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import pytest

Error = TypeVar("Error", bound=BaseException)


@contextmanager
def refused(error: type[Error], *named: object) -> Iterator[pytest.ExceptionInfo[Error]]:
    """Expect exactly ``error``, in one printable line that names each of ``named``.

    A fact is what the test itself made or chose: the name of a tensor, a file, an option, a number;
    or a remedy that somebody pastes. It stands in the message as whole words: 2 is not in "12".
    """
    __tracebackhide__ = True
    with pytest.raises(error) as caught:
        yield caught
    text = str(caught.value)
    assert type(caught.value) is error, f"{caught.value!r} is not exactly {error.__name__}"
    assert text.strip() and text.isprintable(), f"{text!r} is not one printable line"
    missing = [str(each) for each in named if not _stands_in(str(each), text)]
    assert not missing, f"{text!r} does not name {', '.join(map(repr, missing))}"


def _stands_in(fact: str, text: str) -> bool:
    begin = r"(?<!\w)" if re.match(r"\w", fact) else ""
    end = r"(?!\w)" if re.search(r"\w$", fact) else ""
    return re.search(f"{begin}{re.escape(fact)}{end}", text) is not None
