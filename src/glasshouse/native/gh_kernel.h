/* Included in every emitted kernel: types, our own mathematics, and helpers of kernels alone. */
#ifndef GH_KERNEL_H
#define GH_KERNEL_H

/* gcc would join the blocks of a row in a way that its vector loops then load piece by piece; and of a value that
 * several choices by one condition share it would make branches, with which a loop stays scalar. */
#pragma GCC optimize("no-loop-unroll-and-jam", "no-tree-pre")

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "gh_math.h"

/* The bits of a value as another type of the same size. */
#define gh_bitcast(from, to, x) \
  ({ from gh_from = (x); to gh_to; __builtin_memcpy(&gh_to, &gh_from, sizeof gh_to); gh_to; })

/* Arithmetic of complex numbers as NumPy has it: products by parts, quotients by Smith's formula. C's own
 * looks for infinities in NaN, which no vector loop does. */
#define GH_COMPLEX(s, T)                                                                           \
  GH_FN T gh_part_##s(T _Complex x, int64_t at) { return at ? __imag__ x : __real__ x; }           \
  GH_FN T _Complex gh_where_##s(int c, T _Complex x, T _Complex y) {                               \
    return __builtin_complex(c ? __real__ x : __real__ y, c ? __imag__ x : __imag__ y);            \
  }                                                                                                \
  GH_FN T _Complex gh_mul_##s(T _Complex x, T _Complex y) {                                        \
    const T a = __real__ x, b = __imag__ x, c = __real__ y, d = __imag__ y;                        \
    return __builtin_complex(a * c - b * d, a * d + b * c);                                        \
  }                                                                                                \
  GH_FN T _Complex gh_div_##s(T _Complex x, T _Complex y) {                                        \
    const T a = __real__ x, b = __imag__ x, c = __real__ y, d = __imag__ y;                        \
    const T size = c < 0 ? -c : c, other = d < 0 ? -d : d;                                         \
    const int wide = size >= other, zero = (size == 0) & (other == 0);                             \
    const T large = wide ? c : d, ratio = (wide ? d : c) / large;                                  \
    const T scale = 1 / (large + (wide ? d : c) * ratio);                                          \
    const T re = (wide ? a + b * ratio : a * ratio + b) * scale;                                   \
    const T im = (wide ? b - a * ratio : b * ratio - a) * scale;                                   \
    return __builtin_complex(zero ? a * (T)INFINITY : re, zero ? b * (T)INFINITY : im);            \
  }
GH_COMPLEX(c64, float)
GH_COMPLEX(c128, double)

/* For each k of the lower half of the lanes: those below h take in those above, down to one. */
#define GH_HALVES(lanes)                                                                   \
  _Pragma("GCC unroll 5") for (int h = (lanes) / 2; h; h /= 2) for (int k = 0; k < h; k++)

/* An index counted from the start; one out of range sets the error flag and reads element 0. */
static inline int64_t gh_index(int64_t at, int64_t size, int64_t *error) {
  const int64_t from_start = at < 0 ? at + size : at;
  const int good = from_start >= 0 && from_start < size;
  if (!good) *error = 1;
  return good ? from_start : 0;
}

/* A round of Philox4x32-10 (Salmon et al. 2011), as in ops/random.py, on variables c0 to c3. The words
 * of 32 bits lie in 64, where vectors multiply them without moving them. */
#define GH_PHILOX_ROUND(k0, k1) do { \
    const uint64_t p0 = (uint64_t)(uint32_t)c0 * 0xD2511F53u, p1 = (uint64_t)(uint32_t)c2 * 0xCD9E8D57u; \
    c0 = (p1 >> 32) ^ c1 ^ k0; \
    c1 = p1; \
    c2 = (p0 >> 32) ^ c3 ^ k1; \
    c3 = p0; \
    k0 += 0x9E3779B9u; \
    k1 += 0xBB67AE85u; \
  } while (0)

/* Word `n` of the random stream of a key. */
static inline uint32_t gh_random(uint64_t n, uint32_t k0, uint32_t k1, uint32_t word2, uint32_t word3) {
  uint64_t c0 = n >> 2, c1 = n >> 34, c2 = word2, c3 = word3;
  for (int round = 0; round < 10; round++)
    GH_PHILOX_ROUND(k0, k1);
  const uint64_t even = n & 2u ? c2 : c0, odd = n & 2u ? c3 : c1;
  return (uint32_t)(n & 1u ? odd : even);
}

/* The words from the `first` on, `count` of them, four from each block; they need GH_WORDS(count) of
 * room. Returns where the first lies. `gh_random`, which makes a block for each word, is the twin. */
enum { GH_BLOCKS = 16 };
#define GH_WORDS(count) ((count) + 8 * GH_BLOCKS)
static inline const uint32_t *gh_random_row(uint64_t first, int64_t count, uint32_t k0, uint32_t k1,
                                            uint32_t word2, uint32_t word3, uint32_t *to) {
  const uint64_t begin = first >> 2;
  const int64_t blocks = (int64_t)(((first + (uint64_t)count + 3) >> 2) - begin);
  for (int64_t j = 0; j < blocks; j += GH_BLOCKS) {
    uint64_t low[GH_BLOCKS], high[GH_BLOCKS];
    #pragma omp simd
    for (int i = 0; i < GH_BLOCKS; i++) {
      const uint64_t n = begin + (uint64_t)(j + i);
      uint64_t c0 = n, c1 = n >> 32, c2 = word2, c3 = word3;
      uint32_t r0 = k0, r1 = k1;
      _Pragma("GCC unroll 10") for (int round = 0; round < 10; round++)
        GH_PHILOX_ROUND(r0, r1);
      low[i] = (uint32_t)c0 | c1 << 32;
      high[i] = (uint32_t)c2 | c3 << 32;
    }
    for (int i = 0; i < GH_BLOCKS; i++) {
      memcpy(to + 4 * (j + i), low + i, sizeof *low);
      memcpy(to + 4 * (j + i) + 2, high + i, sizeof *high);
    }
  }
  return to + (first & 3);
}

#endif
