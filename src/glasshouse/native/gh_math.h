/* Elementwise mathematics for generated kernels, C11, no library of vector functions.
 *
 * Every _f32 function is straight-line code: choices are made by ?:, bits are read by memcpy, so
 * that compilers turn a loop over it into vector instructions. They must be told that errno and
 * exception flags are not looked at; infinities and NaN are right as long as -ffast-math is off:
 *
 *     -O3 -march=native -fopenmp -fno-math-errno -fno-trapping-math -ffp-contract=off
 *
 * All of float32 is within 2 ulp of the exact value (docs/inside/numerics.md has the figures); the _f64
 * functions call libm. Integers follow NumPy: quotients are rounded down, division by 0 gives 0,
 * sums and powers wrap.
 */
#ifndef GH_MATH_H
#define GH_MATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#define GH_FN static inline __attribute__((always_inline, unused))

/* ---- polynomials ------------------------------------------------------------------------- */

/* fitted by tools/fitters/fit_polynomials.py */
/* exp(r) = 1 + r + r² P(r); x in [-0.3475, 0.3475], error 2^-26.1 */
#define GH_EXP_P \
    4.99999970e-01f, 1.66665405e-01f, 4.16675210e-02f, 8.36686604e-03f, 1.38630345e-03f
/* log(1 + f) = f - f²/2 + f³ P(f); x in [-0.2930, 0.4143], error 2^-30.1 */
#define GH_LOG_P \
    3.33333105e-01f, -2.50000149e-01f, 2.00022280e-01f, -1.66677296e-01f, 1.42175153e-01f, \
    -1.24096230e-01f, 1.19057283e-01f, -1.16562784e-01f, 6.68487251e-02f
/* sin(r) = r + r z P(z), z = r²; x in [0, 0.6170], error 2^-27.9 */
#define GH_SIN_P \
    -1.66666538e-01f, 8.33212119e-03f, -1.95110100e-04f
/* cos(r) = 1 - z/2 + z² P(z), z = r²; x in [0, 0.6170], error 2^-33.0 */
#define GH_COS_P \
    4.16666456e-02f, -1.38873106e-03f, 2.44325638e-05f
/* tanh(x) = x + x z P(z), z = x²; x in [0, 0.3906], error 2^-27.7 */
#define GH_TANH_P \
    -3.33332807e-01f, 1.33314118e-01f, -5.37374057e-02f, 2.06321403e-02f, -5.69776166e-03f
/* 1 - erf(a) = (1 - (a + a P(a)) / 8)^8; x in [0, 3.93], error 2^-26.9 */
#define GH_ERF_P \
    1.28379166e-01f, 5.57042778e-01f, 1.67134833e-02f, -5.27175292e-02f, -1.48709118e-03f, \
    4.09919163e-03f, -7.09765125e-04f, 3.82427388e-05f
/* atan(q) = q + q z P(z), z = q²; x in [0, 1], error 2^-28.3 */
#define GH_ATAN_P \
    -3.3333293838181460e-01, 1.9998390513910014e-01, -1.4262576462916823e-01, \
    1.0943566087272853e-01, -8.3785598504095019e-02, 5.7536471517744832e-02, \
    -3.0762979810174708e-02, 1.0694263083185924e-02, -1.7448575743181185e-03
/* log2((1 + s) / (1 - s)) = s P(s²); x in [0, 0.02945], error 2^-37.8 */
#define GH_LOG2_P \
    2.8853900817900300e+00, 9.6179667339759289e-01, 5.7708357640900931e-01, \
    4.1167313346670498e-01, 3.4072393060803557e-01
/* 2**f = 1 + f P(f); x in [-0.5, 0.5], error 2^-28.8 */
#define GH_EXP2_P \
    6.9314720557710041e-01, 2.4022648462281299e-01, 5.5503290351536602e-02, \
    9.6183732513520949e-03, 1.3399848290687685e-03, 1.5370704816587794e-04
/* end of the fitted block */

/* x y + z, rounded once where that is one instruction. No compiler option fuses products into sums,
 * so a value has the same bits whatever else its loop computes. */
#ifdef FP_FAST_FMAF
#define GH_FMA(x, y, z) _Generic((x), double: fma, default: fmaf)(x, y, z)
#else
#define GH_FMA(x, y, z) ((x) * (y) + (z))
#endif

/* GH_POLY(n, x, list): the polynomial in x with the n coefficients of a list, constant first. */
#define GH_POLY(n, x, list) GH_POLY##n(x, list)
#define GH_POLY1(x, a) (a)
#define GH_POLY2(x, a, ...) GH_FMA(x, GH_POLY1(x, __VA_ARGS__), a)
#define GH_POLY3(x, a, ...) GH_FMA(x, GH_POLY2(x, __VA_ARGS__), a)
#define GH_POLY4(x, a, ...) GH_FMA(x, GH_POLY3(x, __VA_ARGS__), a)
#define GH_POLY5(x, a, ...) GH_FMA(x, GH_POLY4(x, __VA_ARGS__), a)
#define GH_POLY6(x, a, ...) GH_FMA(x, GH_POLY5(x, __VA_ARGS__), a)
#define GH_POLY7(x, a, ...) GH_FMA(x, GH_POLY6(x, __VA_ARGS__), a)
#define GH_POLY8(x, a, ...) GH_FMA(x, GH_POLY7(x, __VA_ARGS__), a)
#define GH_POLY9(x, a, ...) GH_FMA(x, GH_POLY8(x, __VA_ARGS__), a)

/* ---- bits -------------------------------------------------------------------------------- */

#define GH_SAME_BITS(name, from, to)                                                               \
    GH_FN to name(from x) {                                                                        \
        to y;                                                                                      \
        memcpy(&y, &x, sizeof y);                                                                  \
        return y;                                                                                  \
    }
GH_SAME_BITS(gh_bits_f32, float, uint32_t)
GH_SAME_BITS(gh_from_bits_f32, uint32_t, float)
GH_SAME_BITS(gh_bits_f64, double, uint64_t)
GH_SAME_BITS(gh_from_bits_f64, uint64_t, double)

#define GH_SIGN 0x80000000u
#define GH_NEAREST 12582912.0f           /* 1.5 * 2^23: added and taken off again, it rounds */
#define GH_NEAREST_F64 6755399441055744.0 /* 1.5 * 2^52 */

/* x with the sign bit of s turned over if that is set in `sign`. */
GH_FN float gh_flip_f32(float x, uint32_t sign) {
    return gh_from_bits_f32(gh_bits_f32(x) ^ (sign & GH_SIGN));
}

/* 2^k for k in [-126, 127]. */
GH_FN float gh_two_to_f32(int32_t k) { return gh_from_bits_f32((uint32_t)(k + 127) << 23); }

/* Normal x > 0 as m * 2^n with m in [sqrt(1/2), sqrt(2)). */
GH_FN float gh_split_normal_f32(float x, int32_t *n) {
    uint32_t u = gh_bits_f32(x) - 0x3f3504f3u;
    *n = (int32_t)u >> 23;
    return gh_from_bits_f32((u & 0x007fffffu) + 0x3f3504f3u);
}

/* The same of every finite x > 0. */
GH_FN float gh_split_f32(float x, int32_t *n) {
    int32_t normal = x >= 1.17549435e-38f;
    float m = gh_split_normal_f32(x * (normal ? 1.0f : 8388608.0f), n);
    *n -= normal ? 0 : 23;
    return m;
}

/* ---- float32: simple --------------------------------------------------------------------- */

GH_FN float gh_neg_f32(float x) { return -x; }
GH_FN float gh_abs_f32(float x) { return fabsf(x); }
GH_FN float gh_floor_f32(float x) { return floorf(x); }
GH_FN float gh_round_f32(float x) { return rintf(x); } /* halves to even */
GH_FN float gh_sqrt_f32(float x) { return sqrtf(x); }
GH_FN float gh_rsqrt_f32(float x) { return 1.0f / sqrtf(x); }
GH_FN float gh_maximum_f32(float x, float y) { return ((x > y) | (x != x)) ? x : y; }
GH_FN float gh_minimum_f32(float x, float y) { return ((x < y) | (x != x)) ? x : y; }

/* ---- float32: exponentials --------------------------------------------------------------- */

/* n and r with x = n log(2) + r, |r| <= log(2) / 2. What rounding took from r is *low. */
GH_FN float gh_exp_reduce_f32(float x, int32_t *n, float *low) {
    float shifted = GH_FMA(x, 1.44269504f, GH_NEAREST), k = shifted - GH_NEAREST;
    float high = GH_FMA(k, -0.693145751953125f, x); /* 15 bits of log(2): the product is exact */
    float r = GH_FMA(k, -1.42860677e-6f, high);
    *n = (int32_t)(gh_bits_f32(shifted) - gh_bits_f32(GH_NEAREST));
    *low = GH_FMA(k, -1.42860677e-6f, high - r);
    return r;
}

/* exp(r) for |r| <= log(2) / 2. */
GH_FN float gh_exp_of_rest_f32(float r) { return GH_FMA(r, GH_FMA(r, GH_POLY(5, r, GH_EXP_P), 1.0f), 1.0f); }

/* exp(x) for x whose result is normal: in [-87, 88]. */
GH_FN float gh_exp_inside_f32(float x) {
    int32_t n;
    float low, r = gh_exp_reduce_f32(x, &n, &low);
    return gh_exp_of_rest_f32(r) * gh_two_to_f32(n);
}

#define GH_NEAREST_BIASED 12583166.0f /* GH_NEAREST + 2 * 127 */

/* From -104 down the result is 0, by a factor of 0: a product that underflows, as that of each masked
   score of an attention would, takes the processor a hundred times as long as another. */
GH_FN float gh_exp_f32(float x) {
    uint32_t kept = 0u - (uint32_t)!(x <= -104.0f); /* no ?:, whose 0 gcc would follow to the end */
    float high = gh_from_bits_f32(gh_bits_f32(x) & kept);
    float shifted = GH_FMA(high, 1.44269504f, GH_NEAREST_BIASED);
    uint32_t n = gh_bits_f32(shifted), top = gh_bits_f32(GH_NEAREST_BIASED + 128.0f);
    n = n < top ? n : top; /* as a larger x, and NaN, has the rest r */
    float k = gh_from_bits_f32(n) - GH_NEAREST_BIASED;
    float r = GH_FMA(k, -1.42860677e-6f, GH_FMA(k, -0.693145751953125f, high));
    uint32_t half = n << 22 & 0x7f800000u; /* two factors, as 2^n itself may be no float */
    float last = gh_from_bits_f32(((n << 23) - half) & kept);
    return gh_exp_of_rest_f32(r) * gh_from_bits_f32(half) * last;
}

GH_FN float gh_expm1_f32(float x) {
    float low, top = 89.0f < x ? 89.0f : x;
    int32_t n;
    float r = gh_exp_reduce_f32(-18.0f > top ? -18.0f : top, &n, &low);
    float half = gh_two_to_f32(n - 1); /* half of 2^n, as 2^128 is no float */
    float bent = GH_FMA(r * r, GH_POLY(5, r, GH_EXP_P), low);
    float y = 2.0f * GH_FMA(half, bent, GH_FMA(half, r, half - 0.5f));
    return fabsf(x) < 5.96046448e-8f ? x : y;
}

GH_FN float gh_tanh_f32(float x) {
    float a = 10.0f < fabsf(x) ? 10.0f : fabsf(x), z = a * a;
    float near0 = GH_FMA(a * z, GH_POLY(5, z, GH_TANH_P), a);
    float far = 1.0f - 2.0f / (gh_exp_inside_f32(2.0f * a) + 1.0f);
    return gh_flip_f32(a > 0.625f ? far : near0, gh_bits_f32(x));
}

/* 1 - (1 - y / 8)^8, y = a + a P(a), by three squarings, of 1 - y / 8, 1 - y / 4 and 1 - y / 2.
   Nothing cancels next to 0, and errors of P count only as erfc does. The rest h of y = a + h is
   squared on with fewer roundings than y, while it is small. */
GH_FN float gh_erf_f32(float x) {
    float a = 3.93f < fabsf(x) ? 3.93f : fabsf(x);
    float h = a * GH_POLY(8, a, GH_ERF_P), y = a + h;
    h = GH_FMA(-0.0625f * y, y, h), y = a + h;
    h = GH_FMA(-0.125f * y, y, h), y = a + h;
    float t = -0.25f * y, near0 = a + GH_FMA(t, y, h), far = GH_FMA(t, y, y);
    return copysignf(a > 0.8f ? far : near0, x);
}

/* ---- float32: logarithms ----------------------------------------------------------------- */

/* n log(2) + log(1 + f) for f in [sqrt(1/2) - 1, sqrt(2) - 1]. */
GH_FN float gh_log_of_parts_f32(float f, int32_t n) {
    float z = f * f, k = (float)n;
    float y = GH_FMA(f * z, GH_POLY(9, f, GH_LOG_P), k * 1.42860677e-6f);
    return GH_FMA(k, 0.693145751953125f, f + GH_FMA(-0.5f, z, y));
}

/* y, the logarithm of u, put right where u is 0, negative, infinite or NaN. */
GH_FN float gh_log_ends_f32(float y, float u) {
    float nonpositive = u == 0.0f ? -INFINITY : NAN;
    return u > 0.0f ? (u == INFINITY ? u : y) : nonpositive;
}

GH_FN float gh_log_f32(float x) {
    int32_t n;
    float m = gh_split_f32(x, &n);
    return gh_log_ends_f32(gh_log_of_parts_f32(m - 1.0f, n), x);
}

GH_FN float gh_log1p_f32(float x) {
    int32_t n;
    float u = 1.0f + x, large = 1.0f > x ? 1.0f : x, small = 1.0f > x ? x : 1.0f;
    float lost = small - (u - large); /* u + lost is just 1 + x */
    float m = gh_split_normal_f32(u, &n), scale = gh_two_to_f32(-(n < 64 ? n : 64));
    float y = gh_log_ends_f32(gh_log_of_parts_f32((m - 1.0f) + lost * scale, n), u);
    return gh_from_bits_f32(gh_bits_f32(y) | (gh_bits_f32(x) & GH_SIGN)); /* of -0 it is -0 */
}

/* ---- float32: angles --------------------------------------------------------------------- */

/* p less its nearest integer: whole turns taken off. */
#define GH_TURNS_OFF(p) ((p) - rint(p))

/* |x| = (4 k + *quadrant) pi/2 + result, |result| <= pi/4, for every finite x.
 *
 * The turns, |x| / (2 pi), are a sum of products in doubles, with 1 / (2 pi) in pieces of 29 bits
 * and a last one of 53. So products with x are exact, and whole turns can be taken off each. This
 * costs less than choosing the three pieces that count for the size of x.
 */
GH_FN float gh_angle_f32(float x, uint32_t *quadrant) {
    double a = (double)fabsf(x);
    double p0 = a * 0x1.45f306dp-3, p1 = a * 0x1.9391054p-32, p2 = a * 0x1.4fe13abp-61;
    double p3 = a * 0x1.d1f534dp-90, p4 = a * 0x1.b81b6c5p-119, p5 = a * 0x1.5993c439041fep-150;
    p0 = GH_TURNS_OFF(p0), p1 = GH_TURNS_OFF(p1), p2 = GH_TURNS_OFF(p2);
    p3 = GH_TURNS_OFF(p3), p4 = GH_TURNS_OFF(p4);
    double q = rint(4.0 * (((p0 + p1) + (p2 + p3)) + (p4 + p5)));
    double part = (((((p0 - 0.25 * q) + p1) + p2) + p3) + p4) + p5; /* in order: they cancel */
    *quadrant = gh_bits_f32((float)q + GH_NEAREST); /* its low two bits count */
    return (float)(part * 6.2831853071795865);
}

/* sin(r + quadrant pi/2) for |r| <= pi/4. */
GH_FN float gh_sin_of_rest_f32(float r, uint32_t quadrant) {
    float z = r * r;
    float sine = GH_FMA(r * z, GH_POLY(3, z, GH_SIN_P), r);
    float cosine = 1.0f + GH_FMA(z * z, GH_POLY(3, z, GH_COS_P), -0.5f * z);
    return gh_flip_f32(quadrant & 1u ? cosine : sine, quadrant << 30);
}

GH_FN float gh_sin_f32(float x) {
    uint32_t quadrant;
    float r = gh_angle_f32(x, &quadrant);
    return gh_flip_f32(gh_sin_of_rest_f32(r, quadrant), gh_bits_f32(x));
}

GH_FN float gh_cos_f32(float x) {
    uint32_t quadrant;
    float r = gh_angle_f32(x, &quadrant);
    return gh_sin_of_rest_f32(r, quadrant + 1u);
}

/* The angle of the point (x, y), in [-pi, pi]; computed in doubles. */
GH_FN float gh_atan2_f32(float y, float x) {
    double ax = (double)fabsf(x), ay = (double)fabsf(y);
    double large = ax > ay ? ax : ay, small = ax > ay ? ay : ax;
    double equal = large == 0.0 ? 0.0 : 1.0; /* 0/0 counts as 0 here, inf/inf as 1 */
    double q = large == small ? equal : small / large, z = q * q;
    double a = q + q * z * GH_POLY(9, z, GH_ATAN_P);
    a = ay > ax ? 1.5707963267948966 - a : a;
    a = gh_bits_f32(x) >> 31 ? 3.1415926535897931 - a : a;
    float angle = gh_flip_f32((float)a, gh_bits_f32(y));
    return ((x != x) | (y != y)) ? x + y : angle;
}

/* ---- float32: power and remainder -------------------------------------------------------- */

/* x to the power y, with the special cases of C; computed as 2^(y log2|x|) in doubles. Powers that the
   compiler knows to be small integers or a root are products in doubles, a quotient or a root. */
GH_FN float gh_pow_f32(float x, float y) {
    if (__builtin_constant_p(y)) {
        double d = (double)x;
        if (y == 2.0f) return x * x;
        if (y == 3.0f) return (float)(d * d * d);
        if (y == 4.0f) return (float)((d * d) * (d * d));
        if (y == -1.0f) return 1.0f / x;
        if (y == -2.0f) return (float)(1.0 / (d * d));
        if (y == 0.5f) return x == -INFINITY ? INFINITY : sqrtf(x + 0.0f); /* of -0.0 it is 0.0 */
    }
    int32_t n;
    float a = fabsf(x), half = 0.5f * y;
    double m = (double)gh_split_f32(a, &n), s = (m - 1.0) / (m + 1.0), z = s * s;
    double log2a = (double)n + s * GH_POLY(5, z, GH_LOG2_P);
    double t = (double)y * log2a;
    t = 200.0 < t ? 200.0 : t;
    t = -200.0 > t ? -200.0 : t;
    double shifted = t + GH_NEAREST_F64, f = t - (shifted - GH_NEAREST_F64);
    double scale = gh_from_bits_f64((gh_bits_f64(shifted) + 1023u) << 52);
    float size = (float)((1.0 + f * GH_POLY(6, f, GH_EXP2_P)) * scale);
    float end = (a == 0.0f) == (y < 0.0f) ? INFINITY : 0.0f;
    size = ((a == 0.0f) | (a == INFINITY)) ? end : size;
    size = ((a == 1.0f) & (y == y)) ? 1.0f : size; /* also where y is infinite */
    uint32_t odd = ((floorf(y) == y) & (floorf(half) != half)) ? GH_SIGN : 0u;
    float result = gh_flip_f32(size, gh_bits_f32(x) & odd);
    result = ((x < 0.0f) & (a != INFINITY) & (floorf(y) != y)) ? NAN : result;
    result = ((x != x) | (y != y)) ? x + y : result;
    return ((y == 0.0f) | (x == 1.0f)) ? 1.0f : result;
}

/* One step of a long division: r less the nearest multiple of b * 2^shift, exact in doubles. */
#define GH_REMAINDER_STEP(shift) r -= (b * 0x1p##shift) * rint(r * (inverse * 0x1p-##shift));

/* x - floor(x / y) y, exact before its one rounding; the sign is that of y. */
GH_FN float gh_remainder_f32(float x, float y) {
    double r = (double)x, b = (double)y, inverse = 1.0 / b;
    GH_REMAINDER_STEP(261) GH_REMAINDER_STEP(232) GH_REMAINDER_STEP(203) GH_REMAINDER_STEP(174)
    GH_REMAINDER_STEP(145) GH_REMAINDER_STEP(116) GH_REMAINDER_STEP(87) GH_REMAINDER_STEP(58)
    GH_REMAINDER_STEP(29) GH_REMAINDER_STEP(0)
    r = ((fabsf(y) == INFINITY) & (fabsf(x) < INFINITY)) ? (double)x : r;
    double other = (r < 0.0) != (b < 0.0) ? r + b : r;
    return (float)(r == 0.0 ? copysign(0.0, b) : other);
}

/* ---- float64: libm ----------------------------------------------------------------------- */

#define GH_LIBM(ours, theirs) GH_FN double gh_##ours##_f64(double x) { return theirs(x); }
GH_LIBM(neg, -) GH_LIBM(abs, fabs) GH_LIBM(floor, floor) GH_LIBM(round, rint) GH_LIBM(sqrt, sqrt)
GH_LIBM(exp, exp) GH_LIBM(expm1, expm1) GH_LIBM(log, log) GH_LIBM(log1p, log1p) GH_LIBM(sin, sin)
GH_LIBM(cos, cos) GH_LIBM(tanh, tanh) GH_LIBM(erf, erf) GH_LIBM(rsqrt, 1.0 / sqrt)
GH_FN double gh_pow_f64(double x, double y) { return pow(x, y); }
GH_FN double gh_atan2_f64(double y, double x) { return atan2(y, x); }
GH_FN double gh_maximum_f64(double x, double y) { return ((x > y) | (x != x)) ? x : y; }
GH_FN double gh_minimum_f64(double x, double y) { return ((x < y) | (x != x)) ? x : y; }

GH_FN double gh_remainder_f64(double x, double y) {
    double r = fmod(x, y);
    double other = (r < 0.0) != (y < 0.0) ? r + y : r;
    return r == 0.0 ? copysign(0.0, y) : other;
}

/* ---- half precision: conversions, by bits ------------------------------------------------ */

GH_FN float gh_bf16_to_f32(uint16_t h) { return gh_from_bits_f32((uint32_t)h << 16); }

/* Of a float that is a bfloat16 already. */
GH_FN uint16_t gh_bits_bf16(float x) { return (uint16_t)(gh_bits_f32(x) >> 16); }

/* To nearest, ties to even, as a float: a type of 16 bits would halve the vectors of a loop. NaN
 * stays NaN. */
GH_FN float gh_round_bf16(float x) {
    uint32_t u = gh_bits_f32(x);
    uint32_t nearest = u + 0x7fffu + (u >> 16 & 1u), quiet = u | 0x00400000u;
    return gh_from_bits_f32((x != x ? quiet : nearest) & 0xffff0000u);
}

GH_FN uint16_t gh_f32_to_bf16(float x) { return gh_bits_bf16(gh_round_bf16(x)); }

GH_FN float gh_f16_to_f32(uint32_t h) {
    uint32_t u = (h & 0x7fffu) << 13;
    uint32_t normal = u + (112u << 23), ends = u | 0x7f800000u;
    /* a subnormal half: its bits after those of 2^-14, less 2^-14 */
    float subnormal = gh_from_bits_f32(u | 113u << 23) - 6.10351562e-5f;
    float wide = gh_from_bits_f32(u >= 0x0f800000u ? ends : normal);
    return gh_flip_f32(u < 0x00800000u ? subnormal : wide, h << 16);
}

/* To nearest, ties to even; 65520 and more become infinite; NaN stays NaN. */
GH_FN uint32_t gh_f32_to_f16(float x) {
    uint32_t u = gh_bits_f32(x), a = u & 0x7fffffffu;
    uint32_t top = a < 0x47800000u ? a : 0x47800000u; /* 65536, which is infinite as a half */
    uint32_t normal = (top - (112u << 23) + 0xfffu + (top >> 13 & 1u)) >> 13;
    /* added to 1/2, the last place of a float is that of the subnormal halves */
    uint32_t subnormal = gh_bits_f32(gh_from_bits_f32(a) + 0.5f) - 0x3f000000u;
    uint32_t h = a < 0x38800000u ? subnormal : normal;
    h = a > 0x7f800000u ? 0x7e00u | (a >> 13 & 0x1ffu) : h;
    return h | (u >> 16 & 0x8000u);
}

GH_FN float gh_round_f16(float x) { return gh_f16_to_f32(gh_f32_to_f16(x)); }

/* ---- integers ---------------------------------------------------------------------------- */

/* The quotient rounded to 0. Narrow integers divide as floats of more digits than twice theirs
 * or as many, which is exact and has vector instructions. */
#define GH_QUOTIENT_F32(T, x, y) ((T)((float)(x) / (float)(y)))
#define GH_QUOTIENT_F64(T, x, y) ((T)((double)(x) / (double)(y)))
#define GH_QUOTIENT_INT(T, x, y) ((T)((x) / (y)))

/* T: the type, U: unsigned of its width, W: unsigned and no narrower than int. */
#define GH_BOTH(s, T, U, W)                                                                        \
    GH_FN T gh_maximum_##s(T x, T y) { return x > y ? x : y; }                                     \
    GH_FN T gh_minimum_##s(T x, T y) { return x < y ? x : y; }                                     \
    GH_FN T gh_neg_##s(T x) { return (T)((W)0 - (W)x); }                                           \
    GH_FN T gh_power_##s(T x, U n) {                                                               \
        W base = (W)x, y = 1;                                                                      \
        for (; n; n >>= 1, base *= base)                                                           \
            y *= n & 1 ? base : 1;                                                                 \
        return (T)y;                                                                               \
    }

#define GH_SIGNED(s, T, U, W, QUOTIENT)                                                            \
    GH_BOTH(s, T, U, W)                                                                            \
    GH_FN T gh_abs_##s(T x) { return x < 0 ? gh_neg_##s(x) : x; }                                  \
    GH_FN T gh_div_##s(T x, T y) {                                                                 \
        T d = ((y == 0) | (y == -1)) ? 1 : y; /* the least integer by -1 would not fit */          \
        T q = QUOTIENT(T, x, d), r = (T)(x - q * d);                                               \
        q = (T)(q - ((r != 0) & ((r < 0) != (d < 0))));                                            \
        return y == 0 ? 0 : y == -1 ? gh_neg_##s(x) : q;                                           \
    }                                                                                              \
    GH_FN T gh_remainder_##s(T x, T y) {                                                           \
        T d = ((y == 0) | (y == -1)) ? 1 : y;                                                      \
        T q = QUOTIENT(T, x, d), r = (T)(x - q * d);                                               \
        return (T)(r + (((r != 0) & ((r < 0) != (d < 0))) ? d : 0));                               \
    }                                                                                              \
    /* to a negative power: 1 / x rounded to 0, so 0 but for x = 1 and -1 */                       \
    GH_FN T gh_pow_##s(T x, T y) {                                                                 \
        int one = (x == 1) | (x == -1);                                                            \
        return y >= 0 ? gh_power_##s(x, (U)y) : one ? gh_power_##s(x, (U)y & 1) : 0;               \
    }                                                                                              \
    GH_FN T gh_shift_right_##s(T x, T y) {                                                         \
        return (T)(x >> ((U)y < 8 * sizeof(T) ? (int)y : (int)(8 * sizeof(T)) - 1));               \
    }

#define GH_UNSIGNED(s, T, W, QUOTIENT)                                                             \
    GH_BOTH(s, T, T, W)                                                                            \
    GH_FN T gh_abs_##s(T x) { return x; }                                                          \
    GH_FN T gh_div_##s(T x, T y) {                                                                 \
        T q = QUOTIENT(T, x, (T)(y ? y : 1));                                                      \
        return y ? q : 0;                                                                          \
    }                                                                                              \
    GH_FN T gh_remainder_##s(T x, T y) {                                                           \
        T d = y ? y : 1, q = QUOTIENT(T, x, d);                                                    \
        return (T)((W)x - (W)q * d);                                                               \
    }                                                                                              \
    GH_FN T gh_pow_##s(T x, T y) { return gh_power_##s(x, y); }                                    \
    GH_FN T gh_shift_right_##s(T x, T y) { return y < 8 * sizeof(T) ? (T)(x >> y) : 0; }

GH_SIGNED(i8, int8_t, uint8_t, uint32_t, GH_QUOTIENT_F32)
GH_SIGNED(i16, int16_t, uint16_t, uint32_t, GH_QUOTIENT_F32)
GH_SIGNED(i32, int32_t, uint32_t, uint32_t, GH_QUOTIENT_F64)
GH_SIGNED(i64, int64_t, uint64_t, uint64_t, GH_QUOTIENT_INT)
GH_UNSIGNED(u8, uint8_t, uint32_t, GH_QUOTIENT_F32)
GH_UNSIGNED(u16, uint16_t, uint32_t, GH_QUOTIENT_F32)
GH_UNSIGNED(u32, uint32_t, uint32_t, GH_QUOTIENT_F64)
GH_UNSIGNED(u64, uint64_t, uint64_t, GH_QUOTIENT_INT)

#endif
