/* Discrete Fourier transforms of N = 2^a 3^b 5^c elements: Stockham's stages, which leave the results in order,
 * over sequences side by side. Real and imaginary parts lie apart, so that all stages run in vectors. The inverse
 * transform is the forward one of numbers whose parts are exchanged. Real signals of even N are taken as N / 2
 * complex numbers (Van Loan 1992, 4.3). Written for float, and read for double by other names. */

typedef struct {
  float *re, *im;
} gh_parts_f32;

/* Of the widest vectors the first stages would move more numbers about than they compute. */
#if defined(__AVX512F__) && !defined(__clang__)
#define GH_HALF_WIDE __attribute__((target("prefer-vector-width=256")))
#else
#define GH_HALF_WIDE
#endif

#define GH_FORWARD 0
#define GH_INVERSE 1
#define GH_SIGNAL 2 /* of a real signal, the first half of the frequencies */
#define GH_BACK 3   /* and back */

#define GH_AT(x, i) __builtin_complex((x).re[i], (x).im[i])
#define GH_PUT(x, i, z) ((x).re[i] = __real__(z), (x).im[i] = __imag__(z))

GH_FN float _Complex gh_times_f32(float _Complex x, float _Complex y) {
  return __builtin_complex(__real__ x * __real__ y - __imag__ x * __imag__ y,
                           __real__ x * __imag__ y + __imag__ x * __real__ y);
}
GH_FN float _Complex gh_scaled_f32(float c, float _Complex x) {
  return __builtin_complex(c * __real__ x, c * __imag__ x);
}
/* -i x */
GH_FN float _Complex gh_turned_f32(float _Complex x) { return __builtin_complex(__imag__ x, -__real__ x); }

/* exp(-2 pi i k / n) for k < n; threads that come together write the same. */
static gh_parts_f32 gh_roots_f32(float *table, int *ready, int64_t n) {
  if (!__atomic_load_n(ready, __ATOMIC_ACQUIRE)) {
    for (int64_t k = 0; k < n; k++) {
      const long double turn = 6.283185307179586476925286766559L * (long double)k / (long double)n;
      table[k] = (float)cosl(turn), table[n + k] = (float)-sinl(turn);
    }
    __atomic_store_n(ready, 1, __ATOMIC_RELEASE);
  }
  return (gh_parts_f32){table, table + n};
}

/* Work at each place `p` below `count` of `s` sequences, in vectors along the longer of the two. */
#define GH_PLACES(count, FIRST, ...)                                            \
  if (s == 1) {                                                                 \
    _Pragma("omp simd") for (int64_t p = 0; p < count; p++) {                   \
      const int64_t q = 0;                                                      \
      FIRST __VA_ARGS__                                                         \
    }                                                                           \
  } else {                                                                      \
    for (int64_t p = 0; p < count; p++) {                                       \
      FIRST _Pragma("omp simd") for (int64_t q = 0; q < s; q++) { __VA_ARGS__ } \
    }                                                                           \
  }
#define GH_X(k) GH_AT(x, q + s * (p + m * (k)))
#define GH_Y(k, z) GH_PUT(y, q + s * (radix * p + (k)), z)
#define GH_W(k) const float _Complex w##k = GH_AT(w, p * step * (k));

/* One stage of sequences of `radix` m elements, whose roots lie `step` apart in w. */
GH_FN void gh_stage_f32(int radix, int64_t m, int64_t s, int64_t step, gh_parts_f32 x, gh_parts_f32 y,
                         gh_parts_f32 w) {
  if (radix == 4) {
    GH_PLACES(m, GH_W(1) GH_W(2) GH_W(3),
      const float _Complex a = GH_X(0), b = GH_X(1), c = GH_X(2), d = GH_X(3);
      const float _Complex even = a + c, odd = a - c, sum = b + d, turn = gh_turned_f32(b - d);
      GH_Y(0, even + sum);
      GH_Y(1, gh_times_f32(odd + turn, w1));
      GH_Y(2, gh_times_f32(even - sum, w2));
      GH_Y(3, gh_times_f32(odd - turn, w3));)
  } else if (radix == 2) {
    GH_PLACES(m, GH_W(1),
      const float _Complex a = GH_X(0), b = GH_X(1);
      GH_Y(0, a + b);
      GH_Y(1, gh_times_f32(a - b, w1));)
  } else if (radix == 3) {
    const float sine = (float)0.866025403784438646763723170752936;
    GH_PLACES(m, GH_W(1) GH_W(2),
      const float _Complex a = GH_X(0), b = GH_X(1), c = GH_X(2);
      const float _Complex sum = b + c, left = a - gh_scaled_f32((float)0.5, sum);
      const float _Complex turn = gh_scaled_f32(sine, gh_turned_f32(b - c));
      GH_Y(0, a + sum);
      GH_Y(1, gh_times_f32(left + turn, w1));
      GH_Y(2, gh_times_f32(left - turn, w2));)
  } else {
    const float c1 = (float)0.309016994374947424102293417182819, c2 = (float)-0.809016994374947424102293417182819;
    const float s1 = (float)0.951056516295153572116439333379382, s2 = (float)0.587785252292473129168705954639073;
    GH_PLACES(m, GH_W(1) GH_W(2) GH_W(3) GH_W(4),
      const float _Complex a = GH_X(0), b = GH_X(1), c = GH_X(2), d = GH_X(3), e = GH_X(4);
      const float _Complex outer = b + e, inner = c + d;
      const float _Complex one = a + gh_scaled_f32(c1, outer) + gh_scaled_f32(c2, inner);
      const float _Complex two = a + gh_scaled_f32(c2, outer) + gh_scaled_f32(c1, inner);
      const float _Complex far = gh_turned_f32(b - e), near = gh_turned_f32(c - d);
      const float _Complex turn1 = gh_scaled_f32(s1, far) + gh_scaled_f32(s2, near);
      const float _Complex turn2 = gh_scaled_f32(s2, far) - gh_scaled_f32(s1, near);
      GH_Y(0, a + outer + inner);
      GH_Y(1, gh_times_f32(one + turn1, w1));
      GH_Y(2, gh_times_f32(two + turn2, w2));
      GH_Y(3, gh_times_f32(two - turn2, w3));
      GH_Y(4, gh_times_f32(one - turn1, w4));)
  }
}

/* Transform `s` sequences of n elements side by side, which lie in x; returns where the results lie, x or y. */
GH_HALF_WIDE __attribute__((noinline)) static gh_parts_f32
gh_stages_f32(int64_t n, int64_t s, int64_t size, gh_parts_f32 x, gh_parts_f32 y, gh_parts_f32 w) {
  for (int64_t left = n; left > 1;) {
    const int radix = left % 4 == 0 ? 4 : left % 2 == 0 ? 2 : left % 3 == 0 ? 3 : 5;
    const int64_t m = left / radix, step = size / left;
    gh_stage_f32(radix, m, s, step, x, y, w);
    const gh_parts_f32 other = x;
    x = y, y = other, left = m, s *= radix;
  }
  return x;
}

/* Element k of a sequence in memory. */
#define GH_READ(k) in[q + (k) * apart]
#define GH_WRITE(k) out[q + (k) * apart]
#define GH_TAKE(k) GH_PUT(from, q + s * p, k)

/* Read `s` sequences, their elements `apart`, as complex numbers to be transformed. */
GH_FN void gh_read_f32(int kind, int64_t n, int64_t s, const float *reals, int64_t apart,
                        gh_parts_f32 from, gh_parts_f32 w) {
  const float *in = reals;
  const int64_t half = n / 2;
  if (kind == GH_SIGNAL && n % 2) {
    GH_PLACES(n, , from.re[q + s * p] = GH_READ(p); from.im[q + s * p] = 0;)
  } else if (kind == GH_SIGNAL) {
    GH_PLACES(half, , from.re[q + s * p] = GH_READ(2 * p); from.im[q + s * p] = GH_READ(2 * p + 1);)
  } else {
    const float _Complex *in = (const float _Complex *)reals;
    if (kind != GH_BACK) {
      GH_PLACES(n, , const float _Complex z = GH_READ(p); GH_TAKE(z);)
    } else if (n % 2) {
      GH_PLACES(half + 1, , const float _Complex z = GH_READ(p); GH_TAKE(z);)
      GH_PLACES(half, , const float _Complex z = GH_READ(half - p); const int64_t at = q + s * (half + 1 + p);
                from.re[at] = __real__ z; from.im[at] = -__imag__ z;)
      for (int64_t q = 0; q < s; q++) from.im[q] = 0;
    } else {
      GH_PLACES(half, , const float _Complex z = GH_READ(p), other = GH_READ(half - p);
                const float _Complex y = __builtin_complex(__real__ other, -__imag__ other);
                const float _Complex turned = gh_turned_f32(z - y);
                const float _Complex v = __builtin_complex(w.re[p], -w.im[p]);
                const float _Complex both = z + y - gh_times_f32(v, turned);
                GH_TAKE(both);)
      for (int64_t q = 0; q < s; q++) {
        const float first = __real__ GH_READ(0), last = __real__ GH_READ(half);
        from.re[q] = first + last, from.im[q] = first - last;
      }
    }
  }
}

/* Write the results of `s` sequences. */
GH_FN void gh_write_f32(int kind, int64_t n, int64_t s, float *reals, int64_t apart,
                         gh_parts_f32 x, gh_parts_f32 w) {
  float *out = reals;
  const int64_t half = n / 2;
  if (kind == GH_BACK && n % 2) {
    GH_PLACES(n, , GH_WRITE(p) = x.re[q + s * p];)
  } else if (kind == GH_BACK) {
    GH_PLACES(half, , GH_WRITE(2 * p) = x.re[q + s * p]; GH_WRITE(2 * p + 1) = x.im[q + s * p];)
  } else {
    float _Complex *out = (float _Complex *)reals;
    if (kind != GH_SIGNAL) {
      GH_PLACES(n, , GH_WRITE(p) = GH_AT(x, q + s * p);)
    } else if (n % 2) {
      GH_PLACES(half + 1, , GH_WRITE(p) = GH_AT(x, q + s * p);)
    } else {
      const int64_t more = half - 1;
      GH_PLACES(more, , const float _Complex z = GH_AT(x, q + s * (p + 1)), other = GH_AT(x, q + s * (half - 1 - p));
                const float _Complex y = __builtin_complex(__real__ other, -__imag__ other);
                const float _Complex odd = gh_times_f32(gh_turned_f32(z - y), GH_AT(w, p + 1));
                GH_WRITE(p + 1) = gh_scaled_f32((float)0.5, z + y + odd);)
      for (int64_t q = 0; q < s; q++) {
        GH_WRITE(0) = __builtin_complex(x.re[q] + x.im[q], (float)0);
        GH_WRITE(half) = __builtin_complex(x.re[q] - x.im[q], (float)0);
      }
    }
  }
}

#define GH_SIDE 16 /* sequences at most that are transformed side by side */

/* Transforms of n elements along the middle axis of (pre, n, post); of a signal's frequencies half are in memory. */
__attribute__((noipa)) static void
gh_fourier_f32(int kind, int64_t pre, int64_t n, int64_t post, const float *in, float *out, float *table,
               int *ready, int shared) {
  const gh_parts_f32 w = gh_roots_f32(table, ready, n);
  const int64_t size = kind < GH_SIGNAL || n % 2 ? n : n / 2;
  const int64_t count_in = kind == GH_BACK ? n / 2 + 1 : n, count_out = kind == GH_SIGNAL ? n / 2 + 1 : n;
  const int64_t wide_in = kind == GH_SIGNAL ? 1 : 2, wide_out = kind == GH_BACK ? 1 : 2; /* in floats */
  const int64_t parts = (post + GH_SIDE - 1) / GH_SIDE;
  #pragma omp parallel for schedule(static) if (shared)
  for (int64_t block = 0; block < pre * parts; block++) {
    const int64_t p = block / parts, lo = block % parts * GH_SIDE, s = post - lo < GH_SIDE ? post - lo : GH_SIDE;
    float *room = malloc(sizeof(float) * 4 * (size_t)(size * s));
    const gh_parts_f32 x = {room, room + size * s}, y = {room + 2 * size * s, room + 3 * size * s};
    const gh_parts_f32 exchanged = {x.im, x.re}, room_of_it = {y.im, y.re};
    gh_read_f32(kind, n, s, in + (p * count_in * post + lo) * wide_in, post, x, w);
    gh_parts_f32 z = x;
    if (kind == GH_FORWARD || kind == GH_SIGNAL) {
      z = gh_stages_f32(size, s, n, x, y, w);
    } else {
      z = gh_stages_f32(size, s, n, exchanged, room_of_it, w);
      z = (gh_parts_f32){z.im, z.re};
    }
    gh_write_f32(kind, n, s, out + (p * count_out * post + lo) * wide_out, post, z, w);
    free(room);
  }
}
