"""Shared by tables of wrong calls: the form of every error of ours, and the check of a call."""

import re

import pytest

import glasshouse as gh

# where: expected …; got …. fix.
FORM = re.compile(r"^[^:]+: .*expected .*; (but )?got .*[.)\]'\"] ?\S.*[.!?)]$", re.S)


def check_refused(call, error: type[Exception], text: str) -> None:
    """That `call()` raises an error of this class, in our form, whose message has this text."""
    with pytest.raises(error) as caught:
        read(call())
    message = str(caught.value)
    assert text in message, message
    assert FORM.match(message), message


def read(result) -> None:
    """Read a result: an error in contents shows only then."""
    if isinstance(result, gh.Tensor):
        result.numpy()
