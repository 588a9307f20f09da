"""Networks of integers as folders of C: the bits of their Programs."""

import c_programs
import numpy as np
import pytest

import glasshouse as gh
from glasshouse import nn


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["int8_dynamic", "int8_static"])
def test_a_network_of_integers_gives_the_bits_of_its_program(tmp_path, scheme):
    gh.manual_seed(0)
    layers = [nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
    model = nn.Sequential(*layers, nn.Linear(128, 10)).eval()
    x = np.random.default_rng(1).random((8, 1, 8, 8), np.float32)
    more = {"calibrate": [gh.asarray(x)]} if scheme == "int8_static" else {}
    gh.quantize(model, scheme, **more)
    gh.export_program(model, tmp_path, x)
    program = c_programs.loaded(tmp_path, "program")
    (result,) = program.run(x)
    with c_programs.plainly(), c_programs.always(), gh.no_grad():
        expected = gh.optimize(lambda y: model(y))(gh.asarray(x)).numpy()
    np.testing.assert_array_equal(result, expected)
    program.close()
    assert gh.load(tmp_path / "program.safetensors")["4.codes"].dtype is gh.int8
