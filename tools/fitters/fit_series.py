"""Print tensor/special/series.py: Chebyshev series of special functions, fitted here.

Each function is smooth in a variable from -1 to 1; its values at Chebyshev points, computed by
mpmath with 40 digits, give the coefficients. Those below 1e-17 of the largest are left out.

    python tools/fitters/fit_series.py
"""

import textwrap

import mpmath as mp

mp.mp.dps = 40
POINTS = 60


def far(of, low=8):
    """A function of x above `low`, in the variable 2 · low / x - 1."""
    return lambda t: of(mp.mpf(2 * low) / (t + 1))


def near(of, high=8):
    """A function of x from 0 to `high`, in the variable 2 x / high - 1."""
    return lambda t: of((t + 1) * high / 2)


def in_square(of, high=8):
    """An even function of x from 0 to `high`, in the variable 2 (x / high)² - 1."""
    return lambda t: of(mp.sqrt((t + 1) / 2) * high)


def far_square(of, low=8):
    """A function of x above `low`, in the variable 2 (low / x)² - 1."""
    return lambda t: of(low / mp.sqrt((t + 1) / 2))


def amplitudes(order: int):
    """(P, x · Q): J and Y are sqrt(2 / πx) times P cos - Q sin and P sin + Q cos of
    x - (order / 2 + 1 / 4) π."""

    def parts(x):
        angle = x - (mp.mpf(order) / 2 + mp.mpf(1) / 4) * mp.pi
        scale = mp.sqrt(mp.pi * x / 2)
        j, y = mp.besselj(order, x) * scale, mp.bessely(order, x) * scale
        c, s = mp.cos(angle), mp.sin(angle)
        return j * c + y * s, (y * c - j * s) * x

    return lambda x: parts(x)[0], lambda x: parts(x)[1]


def scaled_erfc(t):
    x = mp.mpf(15) / 4 * (1 + t) / (1 - t)
    return (1 + 2 * x) * mp.exp(x * x) * mp.erfc(x)


def airy_amplitudes():
    """(P, z · Q): Ai and Bi of -x are (P sin - Q cos) and (P cos + Q sin) of z + π / 4, over
    sqrt(π) x^(1/4), with z = 2/3 x^(3/2)."""

    def parts(x):
        z = mp.mpf(2) / 3 * x**1.5
        angle, scale = z + mp.pi / 4, mp.sqrt(mp.pi) * x ** (mp.mpf(1) / 4)
        a, b = mp.airyai(-x) * scale, mp.airybi(-x) * scale
        c, s = mp.cos(angle), mp.sin(angle)
        return a * s + b * c, (b * s - a * c) * z

    return lambda x: parts(x)[0], lambda x: parts(x)[1]


def falling_airy(x):
    return mp.airyai(x) * mp.exp(mp.mpf(2) / 3 * x**1.5) * x ** (mp.mpf(1) / 4)


def by_power(of, low, power):
    """A function of x above `low`, in the variable 2 (low / x)^power - 1."""
    return lambda t: of(low / ((t + 1) / 2) ** (1 / mp.mpf(power)))


P0, Q0 = amplitudes(0)
P1, Q1 = amplitudes(1)
AIRY_P, AIRY_Q = airy_amplitudes()
SERIES = {
    "ERFCX": scaled_erfc,
    "I0_NEAR": near(lambda x: mp.exp(-x) * mp.besseli(0, x)),
    "I0_FAR": far(lambda x: mp.exp(-x) * mp.sqrt(x) * mp.besseli(0, x)),
    "I1_NEAR": near(lambda x: mp.exp(-x) * mp.besseli(1, x) / x),
    "I1_FAR": far(lambda x: mp.exp(-x) * mp.sqrt(x) * mp.besseli(1, x)),
    "K0_NEAR": in_square(lambda x: mp.besselk(0, x) + mp.log(x / 2) * mp.besseli(0, x), 2),
    "K0_FAR": far(lambda x: mp.exp(x) * mp.sqrt(x) * mp.besselk(0, x), 2),
    "K1_NEAR": in_square(lambda x: x * (mp.besselk(1, x) - mp.log(x / 2) * mp.besseli(1, x)), 2),
    "K1_FAR": far(lambda x: mp.exp(x) * mp.sqrt(x) * mp.besselk(1, x), 2),
    "J0_NEAR": in_square(lambda x: mp.besselj(0, x)),
    "J1_NEAR": in_square(lambda x: mp.besselj(1, x) / x),
    "Y0_NEAR": in_square(lambda x: mp.bessely(0, x) - 2 / mp.pi * mp.log(x) * mp.besselj(0, x)),
    "Y1_NEAR": in_square(
        lambda x: x * mp.bessely(1, x) - 2 / mp.pi * mp.log(x) * x * mp.besselj(1, x)
    ),
    "P0": far_square(P0),
    "Q0": far_square(Q0),
    "P1": far_square(P1),
    "Q1": far_square(Q1),
    "AIRY_NEAR": lambda t: mp.airyai(4 * t - 1),
    "AIRY_FAR": by_power(falling_airy, 3, 1.5),
    "AIRY_P": by_power(AIRY_P, 5, 3),
    "AIRY_Q": by_power(AIRY_Q, 5, 3),
}


def fit(of) -> list[float]:
    angles = [mp.pi * (k + mp.mpf(1) / 2) / POINTS for k in range(POINTS)]
    values = [of(mp.cos(a)) for a in angles]
    results = [
        2 * mp.fsum(v * mp.cos(n * a) for v, a in zip(values, angles, strict=True)) / POINTS
        for n in range(POINTS)
    ]
    results[0] /= 2
    largest = max(map(abs, results))
    while abs(results[-1]) < largest * mp.mpf("1e-17"):
        results.pop()
    return [float(c) for c in results]


def table(name: str, coefficients: list[float]) -> str:
    """One table, filled up to 100 columns."""
    text = f"{name} = ({', '.join(map(repr, coefficients))})"
    lines = textwrap.wrap(text, 87, subsequent_indent=" " * 4, break_on_hyphens=False)
    return "\n".join(lines) + "  # fmt: skip"


if __name__ == "__main__":
    print(*(table(name, fit(of)) for name, of in SERIES.items()), sep="\n")
