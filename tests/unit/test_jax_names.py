"""The table of JAX's names in docs/reference/jax_names.md, and what the judge of meanings found."""

import json
import runpy
from pathlib import Path

import numpy as np
import pytest

import glasshouse as gh
import glasshouse.jax as jax
import glasshouse.jax.numpy as jnp
from glasshouse.jax import lax

ROOT = Path(__file__).parents[2]
FOUND = json.loads((ROOT / "docs" / "reference" / "jax_names.json").read_text())


def test_the_table_is_current():
    tool = runpy.run_path(str(ROOT / "tools" / "documents" / "make_jax_names_table.py"))
    assert tool["PAGE"].read_text() == tool["page"]()


def test_no_name_means_something_else():
    states = {state for state, _ in FOUND["calls"].values()}
    assert states <= {"same", "missing"}


@pytest.mark.quick("jax")
def test_where_numpy_and_pytorch_differ_numpy_is_meant():
    x = gh.asarray([1.0, 2.0, 4.0])
    assert jnp.std(x).item() == pytest.approx(np.std([1, 2, 4]))
    assert jnp.max(jnp.stack([x, x]), 1).tolist() == [4.0, 4.0]
    assert [p.tolist() for p in jnp.split(jnp.arange(6), 3)] == [[0, 1], [2, 3], [4, 5]]
    assert jax.nn.gelu(x)[0].item() != gh.nn.functional.gelu(x)[0].item()


def test_draws_are_functions_of_their_key():
    key = gh.random.key(3)
    first, second = gh.random.split(key)
    one = gh.random.normal((4,), key=first)
    assert one.tolist() == gh.random.normal((4,), key=first).tolist()
    assert one.tolist() != gh.random.normal((4,), key=second).tolist()
    assert gh.random.fold_in(key, 1).tolist() != gh.random.fold_in(key, 2).tolist()
    rows = gh.vmap(lambda k: gh.random.uniform((2,), key=k))(gh.random.split(key, 3))
    assert len(set(rows.numpy().ravel().tolist())) == 6
    with pytest.raises(gh.ShapeError, match="key"):
        gh.random.normal((2,), key=gh.zeros(4))


def test_slices_move_inside_and_keep_gradients():
    x = jnp.arange(5.0)
    assert lax.dynamic_slice(x, (9,), (2,)).tolist() == [3.0, 4.0]
    assert lax.dynamic_update_slice(x, jnp.zeros(2), (9,)).tolist() == [0.0, 1.0, 2.0, 0.0, 0.0]
    slope = jax.grad(lambda x: lax.dynamic_slice(x, (1,), (2,)).sum())(x)
    assert slope.tolist() == [0.0, 1.0, 1.0, 0.0, 0.0]


def test_associative_scan_map_and_reduce_window():
    assert lax.associative_scan(gh.add, jnp.arange(5)).tolist() == [0, 1, 3, 6, 10]
    assert lax.associative_scan(gh.add, jnp.arange(4), reverse=True).tolist() == [6, 6, 5, 3]
    assert lax.map(lambda x: x * 2, jnp.arange(3)).tolist() == [0, 2, 4]
    pooled = lax.reduce_window(jnp.arange(6.0), -jnp.inf, lax.max, (2,), (2,), "VALID")
    assert pooled.tolist() == [1.0, 3.0, 5.0]


def test_arguments_by_name_are_mapped_as_jax_does():
    result = jax.vmap(lambda x, y: x + y)(jnp.arange(3), y=jnp.arange(3))
    assert result.tolist() == [0, 2, 4]
