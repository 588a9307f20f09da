"""Fit the polynomials of native/gh_math.h; prints its block of coefficients.

    python tools/fitters/fit_polynomials.py            # print the block
    python tools/fitters/fit_polynomials.py --check    # whether the header holds this block

Each fit is a weighted least-squares one at Chebyshev nodes, close to the best polynomial. The
coefficients are rounded to their type one by one, from the constant term up, and those above
are fitted again to what is left, so that the rounding of one is made good by the next. All is
done with 60 decimal digits, so the block comes out the same on every machine.
"""

import math
import struct
import sys
from collections.abc import Callable
from decimal import Decimal, getcontext
from pathlib import Path
from typing import NamedTuple

HEADER = Path(__file__).parents[2] / "src" / "glasshouse" / "native" / "gh_math.h"
BEGIN, END = "/* fitted by tools/fitters/fit_polynomials.py */\n", "/* end of the fitted block */\n"

getcontext().prec = 60
ONE, LN2, EIGHTH = Decimal(1), Decimal(2).ln(), Decimal("0.125")


def series(term: Decimal, ratio: Callable[[int], Decimal]) -> Decimal:
    """The sum of the series that starts with `term`; term k is `ratio(k)` times the one before."""
    total, k = term, 1
    while abs(term) > abs(total) * Decimal("1e-58"):
        term *= ratio(k)
        total += term
        k += 1
    return total


def sin(x):
    return series(x, lambda k: -x * x / (2 * k * (2 * k + 1)))


def cos(x):
    return series(ONE, lambda k: -x * x / (2 * k * (2 * k - 1)))


def tanh(x):
    return 1 - 2 / ((2 * x).exp() + 1)


def erf(x):
    root_pi = Decimal("1.77245385090551602729816748334114518279754945612238712821380779")
    by_two = series(x, lambda k: 2 * x * x / (2 * k + 1))
    return 2 / root_pi * (-x * x).exp() * by_two


def atan(x):
    halvings = 0
    while x > Decimal("0.1"):
        x /= 1 + (1 + x * x).sqrt()
        halvings += 1
    return 2**halvings * series(x, lambda k: -x * x * (2 * k - 1) / (2 * k + 1))


def log2_quotient(s):
    return ((1 + s) / (1 - s)).ln() / LN2


class Fit(NamedTuple):
    """A polynomial of `size` coefficients, close to `target` for x in [low, high].

    `error(x)` times the error of the polynomial is the error of the function made of it, relative
    to the function's value.
    """

    name: str
    what: str
    size: int
    low: str
    high: str
    target: Callable[[Decimal], Decimal]
    error: Callable[[Decimal], Decimal]
    letter: str = "f"


def root(function):
    """`function` of the square root: for even polynomials, written in z = x²."""
    return lambda z: function(z.sqrt())


FITS = (
    Fit(
        "EXP",
        "exp(r) = 1 + r + r² P(r)",
        5,
        "-0.3475",
        "0.3475",
        lambda r: (r.exp() - 1 - r) / r**2,
        lambda r: r**2 / (r.exp() - 1),
    ),
    Fit(
        "LOG",
        "log(1 + f) = f - f²/2 + f³ P(f)",
        9,
        "-0.2930",
        "0.4143",
        lambda f: ((1 + f).ln() - f + f**2 / 2) / f**3,
        lambda f: f**3 / (1 + f).ln(),
    ),
    Fit(
        "SIN",
        "sin(r) = r + r z P(z), z = r²",
        3,
        "0",
        "0.6170",
        root(lambda r: (sin(r) - r) / r**3),
        root(lambda r: r**3 / sin(r)),
    ),
    Fit(
        "COS",
        "cos(r) = 1 - z/2 + z² P(z), z = r²",
        3,
        "0",
        "0.6170",
        lambda z: (cos(z.sqrt()) - 1 + z / 2) / z**2,
        lambda z: z**2 / cos(z.sqrt()),
    ),
    Fit(
        "TANH",
        "tanh(x) = x + x z P(z), z = x²",
        5,
        "0",
        "0.3906",
        root(lambda x: (tanh(x) - x) / x**3),
        root(lambda x: x**3 / tanh(x)),
    ),
    Fit(
        "ERF",
        "1 - erf(a) = (1 - (a + a P(a)) / 8)^8",
        8,
        "0",
        "3.93",
        lambda a: 8 * (1 - (1 - erf(a)) ** EIGHTH) / a - 1,
        lambda a: (1 - erf(a)) ** (7 * EIGHTH) * a / erf(a),
    ),
    Fit(
        "ATAN",
        "atan(q) = q + q z P(z), z = q²",
        9,
        "0",
        "1",
        root(lambda q: (atan(q) - q) / q**3),
        root(lambda q: q**3 / atan(q)),
        "",
    ),
    Fit(
        "LOG2",
        "log2((1 + s) / (1 - s)) = s P(s²)",
        5,
        "0",
        "0.02945",
        root(lambda s: log2_quotient(s) / s),
        root(lambda s: s / log2_quotient(s)),
        "",
    ),
    Fit(
        "EXP2",
        "2**f = 1 + f P(f)",
        6,
        "-0.5",
        "0.5",
        lambda f: ((f * LN2).exp() - 1) / f,
        lambda f: f / (f * LN2).exp(),
        "",
    ),
)


def solve(rows: list[list[Decimal]]) -> list[Decimal]:
    """The solution of the linear equations `rows`, each its coefficients and its right side."""
    n = len(rows)
    for k in range(n):
        pivot = max(range(k, n), key=lambda i: abs(rows[i][k]))
        rows[k], rows[pivot] = rows[pivot], rows[k]
        rows[k] = [x / rows[k][k] for x in rows[k]]
        for i in range(n):
            if i != k:
                rows[i] = [x - rows[i][k] * y for x, y in zip(rows[i], rows[k])]
    return [row[n] for row in rows]


def rounded(x: Decimal, letter: str) -> Decimal:
    """`x` to float32 for the letter f, else to float64."""
    value = float(x)
    return Decimal(struct.unpack("f", struct.pack("f", value))[0] if letter else value)


def coefficients(fit: Fit) -> tuple[list[Decimal], float]:
    """The coefficients, constant term first, and the largest relative error between the nodes."""
    low, high, n = Decimal(fit.low), Decimal(fit.high), 6 * fit.size
    turns = [Decimal(math.cos(math.pi * (k + 0.5) / n)) for k in range(n)]
    nodes = [(low + high) / 2 + (high - low) / 2 * turn for turn in turns]
    values, weights = [fit.target(x) for x in nodes], [fit.error(x) for x in nodes]
    done: list[Decimal] = []
    for start in range(fit.size):
        powers = [[w * x**k for k in range(start, fit.size)] for x, w in zip(nodes, weights)]
        left = [w * (v - horner(done, x)) for x, v, w in zip(nodes, values, weights)]
        columns = list(zip(*powers))
        rows = [[dot(a, b) for b in (*columns, left)] for a in columns]
        done.append(rounded(solve(rows)[0], fit.letter))
    return done, float(
        max(abs(w * (v - horner(done, x))) for x, v, w in zip(nodes, values, weights))
    )


def dot(a, b) -> Decimal:
    return sum((x * y for x, y in zip(a, b)), Decimal(0))


def horner(parts: list[Decimal], x: Decimal) -> Decimal:
    total = Decimal(0)
    for c in reversed(parts):
        total = total * x + c
    return total


def block() -> str:
    """The lines of the header between its two marks."""
    lines = []
    for fit in FITS:
        result, error = coefficients(fit)
        digits = 9 if fit.letter else 17
        numbers = [f"{float(c):.{digits - 1}e}{fit.letter}" for c in result]
        per_line = 5 if fit.letter else 3
        body = [", ".join(numbers[i : i + per_line]) for i in range(0, len(numbers), per_line)]
        lines.append(
            f"/* {fit.what}; x in [{fit.low}, {fit.high}], error 2^{math.log2(error):.1f} */"
        )
        lines.append(f"#define GH_{fit.name}_P \\\n    " + ", \\\n    ".join(body))
    return "\n".join(lines) + "\n"


def main() -> int:
    if "--check" not in sys.argv:
        print(BEGIN + block() + END, end="")
        return 0
    held = HEADER.read_text().partition(BEGIN)[2].partition(END)[0]
    fresh = held == block()
    print("up to date" if fresh else f"{HEADER.name} differs: paste the block that this prints")
    return not fresh


if __name__ == "__main__":
    sys.exit(main())
