"""The texts of repr."""

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.base.errors import OptionError


@pytest.mark.parametrize(
    ("x", "text"),
    [
        (gh.asarray([1, 2]), "Tensor([1, 2], dtype=int64)"),
        (gh.asarray(3.14159), "Tensor(3.1416, dtype=float32)"),
        (gh.asarray(1e-9), "Tensor(1.0e-09, dtype=float32)"),
        (gh.asarray([True]), "Tensor([ True], dtype=bool)"),
        (gh.zeros((0, 3)), "Tensor([], dtype=float32, shape=(0, 3))"),
        (gh.zeros(0), "Tensor([], dtype=float32)"),
        (gh.asarray([1 + 2j]), "Tensor([1.+2.j], dtype=complex64)"),
        (gh.ones(2, dtype=gh.bfloat16), "Tensor([1., 1.], dtype=bfloat16)"),
        (
            gh.tensor([1.0], requires_grad=True),
            "Tensor([1.], dtype=float32, requires_grad=True)",
        ),
    ],
)
def test_repr(x, text):
    assert repr(x) == text


def test_rows_are_aligned_and_lines_fit():
    with gh.set_print_options(line_width=60):
        text = repr(gh.asarray(np.arange(40.0).reshape(4, 10)))
        assert all(len(line) <= 60 for line in text.splitlines())
        assert text.splitlines()[1].startswith("        ")


def test_large_tensors_are_summarised():
    text = repr(gh.zeros((500, 500)))
    assert "..." in text and len(text.splitlines()) < 12
    with gh.set_print_options(threshold=10, edge_items=1):
        assert repr(gh.arange(100)) == "Tensor([ 0, ..., 99], dtype=int64)"


def test_options_end_with_their_context():
    with gh.set_print_options(precision=2):
        assert "1.23]" in repr(gh.asarray([1.23456]))
    assert "1.2346]" in repr(gh.asarray([1.23456]))
    with pytest.raises(OptionError, match="'precision'"):
        gh.set_print_options(precison=2)
    with pytest.raises(OptionError, match="0 or more"):
        gh.set_print_options(precision=-1)


def test_values_inside_transforms_show_no_contents():
    log = []
    gh.vmap(lambda x: log.append(repr(x)) or x)(gh.ones((2, 3)))
    assert log == ["VmapTensor(shape=(3,), dtype=float32)"]


def test_format_of_a_number():
    assert f"{gh.asarray(3.14159):.2f}" == "3.14"
