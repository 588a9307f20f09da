/* Products of integers of 8 bits, summed in 32: rows of x by rows of weights, as they lie. Sums are
   exact on each processor; those with an instruction for four products at once (VNNI) have a branch. */
#if defined(__AVX512VNNI__) && defined(__AVX512BW__)
#include <immintrin.h>
#endif
#define GH_UNROLL _Pragma("GCC unroll 36")
enum {
  GH_BYTE_OUT = 4,  /* rows of weights at a time, at most: they share what is read of x */
  GH_BYTE_IN = 8    /* rows of x at a time, at most: they share what is read of the weights */
};

/* Where rows of bytes lie: x in `is_signed` or unsigned ones, sums in rows of `columns`. */
typedef struct {
  const uint8_t *x;
  const int8_t *w;
  int64_t x_row, w_row, depth, columns;
  int is_signed;
} gh_byte_product;

#if defined(__AVX512VNNI__) && defined(__AVX512BW__)
/* `ins` rows of x by `outs` rows of weights. The instruction takes x as unsigned: of a signed one, 128
   more, and 128 times the sum of the weights is taken away at the end. */
GH_FN void gh_byte_tile(const gh_byte_product *s, int64_t row, int64_t column, const int outs, const int ins,
                        int32_t *y) {
  const uint8_t *x = s->x + row * s->x_row;
  const int8_t *w = s->w + column * s->w_row;
  const __m512i flip = _mm512_set1_epi8(s->is_signed ? -128 : 0);
  __m512i sum[GH_BYTE_OUT][GH_BYTE_IN], more[GH_BYTE_OUT];
  GH_UNROLL for (int o = 0; o < outs; o++) {
    more[o] = _mm512_setzero_si512();
    GH_UNROLL for (int i = 0; i < ins; i++) sum[o][i] = _mm512_setzero_si512();
  }
  for (int64_t k = 0; k < s->depth; k += 64) {
    const int64_t left = s->depth - k;
    const __mmask64 some = left < 64 ? ((__mmask64)1 << left) - 1 : ~(__mmask64)0;
    __m512i right[GH_BYTE_IN];
    GH_UNROLL for (int o = 0; o < outs; o++)  /* the rows of weights that come next */
      __builtin_prefetch(w + (o + outs) * s->w_row + k, 0, 3);
    GH_UNROLL for (int i = 0; i < ins; i++)
      right[i] = _mm512_xor_si512(_mm512_maskz_loadu_epi8(some, x + i * s->x_row + k), flip);
    GH_UNROLL for (int o = 0; o < outs; o++) {
      const __m512i own = _mm512_maskz_loadu_epi8(some, w + o * s->w_row + k);
      more[o] = _mm512_dpbusd_epi32(more[o], flip, own);
      GH_UNROLL for (int i = 0; i < ins; i++) sum[o][i] = _mm512_dpbusd_epi32(sum[o][i], right[i], own);
    }
  }
  GH_UNROLL for (int o = 0; o < outs; o++)
    GH_UNROLL for (int i = 0; i < ins; i++)
      y[i * s->columns + o] = _mm512_reduce_add_epi32(_mm512_sub_epi32(sum[o][i], more[o]));
}
#else
GH_FN void gh_byte_tile(const gh_byte_product *s, int64_t row, int64_t column, const int outs, const int ins,
                        int32_t *y) {
  for (int o = 0; o < outs; o++)
    for (int i = 0; i < ins; i++) {
      const uint8_t *x = s->x + (row + i) * s->x_row;
      const int8_t *with_sign = (const int8_t *)x, *w = s->w + (column + o) * s->w_row;
      int32_t sum = 0;  /* gcc 12 sums (int8_t)x[k] as unsigned bytes */
      if (s->is_signed) for (int64_t k = 0; k < s->depth; k++) sum += with_sign[k] * w[k];
      else for (int64_t k = 0; k < s->depth; k++) sum += x[k] * w[k];
      y[i * s->columns + o] = sum;
    }
}
#endif

/* All rows of x, `ins` at a time, by `outs` rows of weights from `column` on, or those that are left. */
GH_FN void gh_byte_rows(const gh_byte_product *s, int64_t rows, const int outs, const int ins, int64_t column,
                        int32_t *y) {
  const int64_t left = s->columns - column < outs ? s->columns - column : outs;
  for (int64_t row = 0; row < rows; row += ins) {
    int32_t *to = y + row * s->columns + column;
    if (left == outs && rows - row >= ins) {
      gh_byte_tile(s, row, column, outs, ins, to);
      continue;
    }
    for (int64_t i = 0; i < ins && row + i < rows; i++)
      for (int64_t o = 0; o < left; o++) gh_byte_tile(s, row + i, column + o, 1, 1, to + i * s->columns + o);
  }
}

/* Where a convolution of one sample and group reads: x (channels, size) at `x`, weights
   (channels, kernel) of one channel that is made, windows of three axes (1 where there are fewer). */
typedef struct {
  int64_t channels, size[3], kernel[3], out[3], stride[3], dilation[3], low[3];
  int is_signed;
} gh_byte_windows;

/* One channel of a convolution: the sums over channels and places of a kernel, row by row. */
GH_FN void gh_byte_channel(const gh_byte_windows *s, const uint8_t *x, const int8_t *w, int32_t *y) {
  const int64_t *n = s->size, *k = s->kernel, *m = s->out, *by = s->stride, *gap = s->dilation, *low = s->low;
  memset(y, 0, sizeof *y * m[0] * m[1] * m[2]);
  for (int64_t c = 0; c < s->channels; c++, x += n[0] * n[1] * n[2])
    for (int64_t a = 0; a < k[0]; a++)
      for (int64_t b = 0; b < k[1]; b++)
        for (int64_t d = 0; d < k[2]; d++) {
          const int32_t own = *w++;
          const int64_t at = d * gap[2] - low[2];
          const int64_t first = at < 0 ? (-at + by[2] - 1) / by[2] : 0;
          const int64_t inside = n[2] > at ? (n[2] - 1 - at) / by[2] + 1 : 0;
          const int64_t last = inside < m[2] ? inside : m[2];
          for (int64_t p = 0; p < m[0]; p++) {
            const int64_t i = p * by[0] + a * gap[0] - low[0];
            if (i < 0 || i >= n[0]) continue;
            for (int64_t q = 0; q < m[1]; q++) {
              const int64_t j = q * by[1] + b * gap[1] - low[1];
              if (j < 0 || j >= n[1]) continue;
              const uint8_t *from = x + (i * n[1] + j) * n[2] + at;
              const int8_t *with_sign = (const int8_t *)from;
              int32_t *to = y + (p * m[1] + q) * m[2];
              const int64_t step = by[2];
              if (s->is_signed)
                for (int64_t r = first; r < last; r++) to[r] += own * with_sign[r * step];
              else
                for (int64_t r = first; r < last; r++) to[r] += own * from[r * step];
            }
          }
        }
}
