"""The C functions of gh_math.h: within 2 ulp everywhere, right at the ends, and vectorised."""

import ctypes
import itertools
import platform
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from scipy import special

from glasshouse.dispatch import primitives

ROOT = Path(__file__).parents[3]
NATIVE = ROOT / "src" / "glasshouse" / "native"
FLAGS = (
    "-O3 -march=native -fopenmp -fno-math-errno -fno-trapping-math -ffp-contract=off "
    "-std=c11 -Wall -Wextra -Werror -fPIC -shared"
).split()
CC = shutil.which("cc")
pytestmark = [
    pytest.mark.skipif(CC is None, reason="no C compiler"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
]

UNARY = {
    "neg": np.negative,
    "abs": np.abs,
    "floor": np.floor,
    "round": np.rint,
    "exp": np.exp,
    "expm1": np.expm1,
    "log": np.log,
    "log1p": np.log1p,
    "sqrt": np.sqrt,
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
    "erf": special.erf,
    "rsqrt": lambda x: 1 / np.sqrt(x),
}
BINARY = {
    "pow": np.power,
    "remainder": np.remainder,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "atan2": np.arctan2,
}
INTEGER = {
    "div": np.floor_divide,
    "remainder": np.remainder,
    "pow": primitives["pow"].ref,
    "shift_right": np.right_shift,
    "maximum": np.maximum,
    "minimum": np.minimum,
}
CONVERSIONS = {
    "bf16_to_f32": ("uint16_t", "float"), "f32_to_bf16": ("float", "uint16_t"),
    "f16_to_f32": ("uint16_t", "float"), "f32_to_f16": ("float", "uint16_t"),
}  # fmt: skip
INTEGERS = {
    f"{'u' * u}{'i' * (1 - u)}{8 * size}": np.dtype(f"{'u' * u}int{8 * size}")
    for u in (0, 1)
    for size in (1, 2, 4, 8)
}
EXACT = {"neg", "abs", "floor", "round", "maximum", "minimum"}


def loop(name: str, inputs: list[str], output: str) -> str:
    """C of `loop_NAME(x, [y,] out, n)`, a loop over the function gh_NAME."""
    arrays = ", ".join(f"const {c} *{v}" for c, v in zip(inputs, "xy"))
    call = ", ".join(f"{v}[i]" for _, v in zip(inputs, "xy"))
    return (
        f"void loop_{name}({arrays}, {output} *out, int64_t n)\n{{\n#pragma omp simd\n"
        f"    for (int64_t i = 0; i < n; i++) out[i] = gh_{name}({call});\n}}\n"
    )


def loops() -> dict[str, str]:
    """The C of a loop over each function, by name."""
    results = {}
    for s, c in (("f32", "float"), ("f64", "double")):
        results |= {f"{name}_{s}": loop(f"{name}_{s}", [c], c) for name in UNARY}
        results |= {f"{name}_{s}": loop(f"{name}_{s}", [c, c], c) for name in BINARY}
    for s, dtype in INTEGERS.items():
        c = f"{dtype.name}_t"
        results |= {f"{name}_{s}": loop(f"{name}_{s}", [c, c], c) for name in INTEGER}
        results |= {f"{name}_{s}": loop(f"{name}_{s}", [c], c) for name in ("neg", "abs")}
    results |= {name: loop(name, [c], out) for name, (c, out) in CONVERSIONS.items()}
    return results


def build(folder: Path, flags: list[str]) -> ctypes.CDLL:
    """The loops of all functions, compiled with `flags`."""
    source, library = folder / "loops.c", folder / "loops.so"
    source.write_text('#include "gh_math.h"\n' + "".join(loops().values()))
    command = [CC, *flags, f"-I{NATIVE}", str(source), "-o", str(library), "-lm"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return ctypes.CDLL(str(library))


X86 = platform.machine() == "x86_64"


@pytest.fixture(scope="module", params=["fused", *(["separate"] if X86 else [])])
def library(request, tmp_path_factory):
    """The compiled loops, for processors with and without instructions for x * y + z."""
    without = [] if request.param == "fused" else ["-mno-fma", "-mno-avx512f"]
    return build(tmp_path_factory.mktemp(request.param), FLAGS + without)


def call(library, name, out, *arrays) -> np.ndarray:
    """Return the results of the loop over gh_NAME for flat arrays, of dtype `out`."""
    arrays = [np.ascontiguousarray(a).ravel() for a in arrays]
    result = np.empty(arrays[0].size, out)
    pointers = [ctypes.c_void_p(a.ctypes.data) for a in (*arrays, result)]
    getattr(library, f"loop_{name}")(*pointers, ctypes.c_int64(result.size))
    return result


def ulps(result: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """The distance of float32 `found` from float64 `exact`, in last places of `exact`.

    Infinite where one is NaN and the other is not, or where a zero has the wrong sign. An infinity
    counts as 2**128, where the next float32 would be.
    """
    nearest = exact.astype(np.float32)
    place = np.ldexp(1.0, np.maximum(np.frexp(exact)[1] - 24, -149))
    place[exact == 0] = 2.0**-149
    ends = [np.where(np.isinf(v), np.copysign(2.0**128, v), v) for v in (result, exact)]
    distance = np.abs(ends[0].astype(np.float64) - ends[1]) / place
    distance[(result == nearest) & np.isinf(nearest)] = 0
    distance[(result == 0) & (nearest == 0) & (np.signbit(result) != np.signbit(nearest))] = np.inf
    distance[np.isnan(result) != np.isnan(exact)] = np.inf
    distance[np.isnan(result) & np.isnan(exact)] = 0
    return distance


def assert_close(result, exact, limit, *inputs):
    distance = ulps(result, exact)
    k = int(np.argmax(distance))
    at = ", ".join(f"{float(x.flat[k])!r}" for x in inputs)
    assert distance[k] <= limit, f"{distance[k]:.3g} ulp at {at}: {result[k]!r}, not {exact[k]!r}"


def special_values() -> np.ndarray:
    """Values at which functions change, of both signs."""
    sizes = [0, 1e-45, 1e-40, 1.17549435e-38, 1e-20, 2**-24, 1e-3, 1 / 3, 0.5, 1, 1.5, 2, 2.5, 3, 4,
             7, 10, 127, 2**23 - 0.5, 2**23 + 1, 2**24 - 1, 2**24, 2**31, 1e20, 3.4028235e38,
             np.inf, np.nan]  # fmt: skip
    return np.array([sign * x for x in sizes for sign in (1, -1)], np.float32)


def every(stride: int) -> np.ndarray:
    """Every `stride`-th of all float32 values, special ones and dense ones near 1."""
    bits = np.arange(0, 2**32, stride, np.uint64).astype(np.uint32)
    dense = np.random.default_rng(0).uniform(-20, 20, 200_000).astype(np.float32)
    return np.concatenate([bits.view(np.float32), special_values(), next_to_quarter_turns(), dense])


def next_to_quarter_turns() -> np.ndarray:
    """The float32 numbers, and their neighbours, that lie closest to multiples of pi/2."""
    parts = [(16367173, 72), (10741887, 11), (16573937, -16), (10057457, 62), (11617958, 17)]
    closest = np.array([np.ldexp(m, e + k) for m, e in parts for k in range(3)], np.float32)
    around = [np.nextafter(closest, np.float32(end)) for end in (0, np.inf)]
    return np.concatenate([closest, *around])


FE_UNDERFLOW = 16  # fenv.h, on x86


@pytest.mark.slow
@pytest.mark.skipif(not X86, reason="the number of the flag is another")
def test_what_exp_rounds_to_0_is_not_computed_by_an_underflow(library):
    """Masked scores of an attention would each take the processor a hundred cycles."""
    fenv = ctypes.CDLL("libm.so.6")
    masked = np.full(64, np.finfo(np.float32).min, np.float32)
    masked[::3], masked[1::3] = -np.inf, -104.0
    fenv.feclearexcept(FE_UNDERFLOW)
    result = call(library, "exp_f32", np.float32, masked)
    assert fenv.fetestexcept(FE_UNDERFLOW) == 0
    assert not result.any() and not np.signbit(result).any()
    small = call(library, "exp_f32", np.float32, np.array([-103.9, -100, -88], np.float32))
    assert fenv.fetestexcept(FE_UNDERFLOW) == FE_UNDERFLOW and small.all()


@pytest.fixture(scope="module")
def values():
    return every(2003)


@pytest.mark.sample(11)
@pytest.mark.parametrize("name", UNARY)
def test_unary_functions_are_close_over_the_whole_range(library, values, name):
    result = call(library, f"{name}_f32", np.float32, values)
    limit = 0 if name in EXACT else 2
    assert_close(result, UNARY[name](values.astype(np.float64)), limit, values)


def pairs() -> tuple[np.ndarray, np.ndarray]:
    """Pairs of floats: of all sizes, of sizes near each other, and all pairs of special values."""
    rng = np.random.default_rng(1)
    n = 200_000
    wild = rng.integers(0, 2**32, (2, n), np.uint32).view(np.float32)
    tame = rng.uniform(-9, 9, (2, n)).astype(np.float32)
    whole = np.stack([tame[0], np.rint(4 * tame[1])])
    near = np.stack([tame[0], tame[0] * (1 + tame[1] * 2.0**-22)]).astype(np.float32)
    power = np.stack([np.exp(10 * tame[0]).astype(np.float32), tame[1]])  # results of all sizes
    ends = np.array(list(itertools.product(special_values(), repeat=2)), np.float32).T
    return tuple(np.concatenate([wild, tame, whole, near, power, ends], axis=1))


@pytest.mark.parametrize("name", BINARY)
def test_binary_functions_are_close_over_the_whole_range(library, name):
    x, y = pairs()
    result = call(library, f"{name}_f32", np.float32, x, y)
    if name == "remainder":  # NumPy's float32 remainder is exact before one rounding; float64's not
        exact = np.remainder(x, y)
        np.testing.assert_array_equal(result, exact)
        assert (np.signbit(result) == np.signbit(exact))[~np.isnan(exact)].all()
        return
    exact = BINARY[name](x.astype(np.float64), y.astype(np.float64))
    if name in EXACT:
        np.testing.assert_array_equal(result, exact.astype(np.float32))
    else:
        assert_close(result, exact, 1, x, y)


@pytest.mark.quick
def test_powers_at_the_boundary_of_one(library):
    """Bases next to 1 with large exponents: an error of the logarithm is multiplied by them."""
    x = (1 + np.arange(-2000, 2000, 2) * 2.0**-24).astype(np.float32).repeat(1000)
    y = np.tile(np.geomspace(1e3, 1e8, 1000), 2000).astype(np.float32)
    result = call(library, "pow_f32", np.float32, x, y)
    assert_close(result, np.power(x.astype(np.float64), y.astype(np.float64)), 1, x, y)


@pytest.mark.parametrize("power", [2, 3, 4, -1, -2, 0.5, 5, -3, 1.5])
def test_powers_that_the_compiler_knows(tmp_path, power):
    """A constant exponent is written into the kernel, where some are products, or a root."""
    source = tmp_path / "powers.c"
    loop = f"for (long i = 0; i < n; i++) y[i] = gh_pow_f32(x[i], (float){power});"
    source.write_text(
        f'#include "gh_math.h"\nvoid loop_power(float *x, float *y, long n) {{ {loop} }}'
    )
    path = tmp_path / "powers.so"
    subprocess.run([CC, *FLAGS, f"-I{NATIVE}", source, "-o", path, "-lm"], check=True)
    x = np.concatenate([special_values(), np.random.default_rng(5).normal(0, 1, 5000),
                        np.geomspace(1e-38, 1e38, 5000)]).astype(np.float32)  # fmt: skip
    results = call(ctypes.CDLL(path), "power", np.float32, x)
    exact = np.power(x.astype(np.float64), np.full(x.size, power, np.float64))
    assert_close(results, exact, 1, x)


@pytest.mark.parametrize("name", [*UNARY, *BINARY])
def test_float64_is_libm(library, name):
    rng = np.random.default_rng(2)
    count = 2 if name in BINARY else 1
    ends = itertools.product(special_values().astype(np.float64), repeat=count)
    inputs = np.concatenate([np.array(list(ends)).T, rng.uniform(-9, 9, (count, 5000))], axis=1)
    result = call(library, f"{name}_f64", np.float64, *inputs)
    expected = (UNARY | BINARY)[name](*inputs)
    if name in EXACT | {"remainder", "sqrt"}:
        np.testing.assert_array_equal(result, expected)
    else:
        np.testing.assert_allclose(result, expected, rtol=1e-15, atol=0)
    defined = ~np.isnan(expected) & (name not in ("maximum", "minimum"))
    assert (np.signbit(result) == np.signbit(expected))[defined].all()


@pytest.mark.parametrize("s", INTEGERS)
@pytest.mark.parametrize("name", INTEGER)
def test_integers_are_as_in_numpy(library, s, name):
    dtype, rng = INTEGERS[s], np.random.default_rng(3)
    ends = np.iinfo(dtype)
    edge = {0, 1, 2, 3, 5, 7, 8, 31, 32, 63, 64, 100, ends.max, ends.max - 1, ends.max // 2}
    edge = sorted(edge | {max(v, ends.min) for v in (-1, -2, -3, -7, -64, ends.min, ends.min + 1)})
    square = np.array(list(itertools.product([v for v in edge if v <= ends.max], repeat=2)), dtype)
    wild = rng.integers(ends.min, ends.max, (50_000, 2), dtype, endpoint=True)
    small = rng.integers(max(-9, ends.min), 9, (50_000, 2), dtype)
    x, y = np.concatenate([square, wild, small, np.stack([wild[:, 0], small[:, 1]], 1)]).T
    if dtype.itemsize == 1:
        x, y = np.meshgrid(*[np.arange(256, dtype=np.uint8).view(dtype)] * 2)
        x, y = x.ravel(), y.ravel()
    if name == "pow" and dtype.kind == "i":
        y = np.maximum(y, ends.min + 1)  # the reference takes the size of a negative exponent
    result = call(library, f"{name}_{s}", dtype, x, y)
    np.testing.assert_array_equal(result, INTEGER[name](x, y))
    np.testing.assert_array_equal(call(library, f"neg_{s}", dtype, x), np.negative(x))
    np.testing.assert_array_equal(call(library, f"abs_{s}", dtype, x), np.abs(x))


@pytest.mark.parametrize(("s", "half"), [("f16", np.float16), ("bf16", ml_dtypes.bfloat16)])
def test_half_precision_conversions(library, values, s, half):
    halves = np.arange(2**16, dtype=np.uint16)
    wide = halves.view(half).astype(np.float32)
    np.testing.assert_array_equal(call(library, f"{s}_to_f32", np.float32, halves), wide)
    finite = wide[np.isfinite(wide)]
    ties = (finite + np.nextafter(finite.astype(half), half(np.inf)).astype(np.float32)) / 2
    for x in (values, ties, np.nextafter(ties, np.float32(0)), np.nextafter(ties, np.float32(9e9))):
        result, expected = call(library, f"f32_to_{s}", np.uint16, x), x.astype(half)
        nan = np.isnan(x)
        assert np.isnan(result.view(half)[nan]).all()
        np.testing.assert_array_equal(result[~nan], expected.view(np.uint16)[~nan])


def assembly_of(folder: Path, names: list[str], flags: list[str]) -> dict[str, str]:
    """The instructions of each compiled loop, by the function's name."""
    source = folder / "loops.c"
    result = loops()
    source.write_text('#include "gh_math.h"\n' + "".join(result[name] for name in names))
    command = [CC, *flags, "-S", "-o", "-", f"-I{NATIVE}", str(source)]
    code = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    parts = re.split(r"^loop_(\w+):$", code, flags=re.M)
    return dict(zip(parts[1::2], parts[2::2]))


def is_vectorised(code: str) -> bool:
    """Whether a loop works on wide registers and calls nothing."""
    return ("ymm" in code or "zmm" in code) and "call" not in code and "jmp\tgh_" not in code


def machine_has_avx2() -> bool:
    cpu = Path("/proc/cpuinfo")
    return cpu.exists() and " avx2 " in cpu.read_text()


FLOAT32 = [f"{name}_f32" for name in (*UNARY, *BINARY)]
NARROW = [f"{name}_{s}" for name in ("div", "remainder") for s in ("i8", "i16", "i32")]


@pytest.mark.slow
@pytest.mark.skipif(not machine_has_avx2(), reason="no AVX2")
@pytest.mark.parametrize("march", ["native", "haswell"])
def test_loops_are_vectorised(tmp_path, march):
    flags = [f"-march={march}" if flag == "-march=native" else flag for flag in FLAGS]
    names = [*FLOAT32, *NARROW, *CONVERSIONS]
    result = assembly_of(tmp_path, names, flags)
    assert result.keys() == {*names}
    assert [name for name in names if not is_vectorised(result[name])] == []


def test_the_coefficients_are_those_of_the_tool(monkeypatch, capsys):
    tool = runpy.run_path(str(ROOT / "tools" / "fitters" / "fit_polynomials.py"))
    monkeypatch.setattr(sys, "argv", ["", "--check"])
    assert tool["main"]() == 0, capsys.readouterr().out
