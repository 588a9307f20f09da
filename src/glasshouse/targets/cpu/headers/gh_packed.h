/* Products of few rows by weights of few bits, which are read as they lie: each block becomes numbers in
   registers. ops/packed/formats.py has the formats; unpacking, then multiplying, is the twin. */
#ifdef __AVX2__
#include <immintrin.h>
#endif
enum {
  GH_OUT = 4,                          /* rows of weights at a time, which share what is read of x */
  GH_IN = 4,                           /* rows of x at a time, which share the numbers of weights */
  GH_PART = 16,                        /* blocks whose scales are read at a time */
  GH_FETCHED = 2                         /* tiles of weights that are fetched before they are read */
};
typedef int32_t gh_ints __attribute__((vector_size(4 * GH_LANES)));

/* How a row lies: a scale, and perhaps a shift, before the codes of each block. */
typedef struct {
  int bits, header, numbers, zero, shifted;
} gh_blocks;

GH_FN int gh_block_bytes(const gh_blocks f) { return f.header + f.numbers * f.bits / 8; }

/* Bytes as integers, one for each lane. */
GH_FN gh_ints gh_from_bytes(const uint8_t *at, const int is_signed) {
#if defined(__AVX512F__)
  const __m128i bytes = _mm_loadu_si128((const __m128i *)at);
  return (gh_ints)(is_signed ? _mm512_cvtepi8_epi32(bytes) : _mm512_cvtepu8_epi32(bytes));
#elif defined(__AVX2__)
  const __m128i bytes = _mm_loadl_epi64((const __m128i *)at);
  return (gh_ints)(is_signed ? _mm256_cvtepi8_epi32(bytes) : _mm256_cvtepu8_epi32(bytes));
#else
  gh_ints v;
  GH_UNROLL for (int i = 0; i < GH_LANES; i++) v[i] = is_signed ? (int8_t)at[i] : at[i];
  return v;
#endif
}

/* The number at `at`: a float32, or a float16. */
GH_FN float gh_scale(const uint8_t *at, const int wide) {
  if (wide) { float x; memcpy(&x, at, 4); return x; }
  uint16_t h;
  memcpy(&h, at, 2);
#ifdef __F16C__
  return _cvtsh_ss(h);
#else
  return gh_f16_to_f32(h);
#endif
}

/* The scales and shifts of `count` blocks. */
GH_FN void gh_scales(const uint8_t *block, const gh_blocks f, const int count, float *scale, float *shift) {
  const int step = gh_block_bytes(f);
#ifdef __AVX512F__
  if (count > 1) {
    const __mmask16 some = (__mmask16)((1 << count) - 1);
    const __m512i lanes = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    const __m512i at = _mm512_mullo_epi32(lanes, _mm512_set1_epi32(step));
    const __m512i pairs = _mm512_mask_i32gather_epi32(lanes, some, at, block, 1);
    _mm512_storeu_ps(scale, _mm512_cvtph_ps(_mm512_cvtepi32_epi16(pairs)));
    if (f.shifted) {
      const __m512i high = _mm512_srli_epi32(pairs, 16);
      _mm512_storeu_ps(shift, _mm512_cvtph_ps(_mm512_cvtepi32_epi16(high)));
    }
    return;
  }
#endif
  for (int b = 0; b < count; b++, block += step) {
    scale[b] = gh_scale(block, f.header == 4 && !f.shifted);
    if (f.shifted) shift[b] = gh_scale(block + 2, 0);
  }
}

/* The codes 0 to 15 as numbers, from `first` on; less the code that stands for 0. */
GH_FN gh_vector gh_steps(const gh_blocks f) {
  gh_vector v = {0};
  GH_UNROLL for (int i = 0; i < GH_LANES; i++) v[i] = (float)(i - f.zero);
  return v;
}

/* The numbers of all codes of a block, which are looked up where the processor has an instruction. */
GH_FN gh_vector gh_table(const gh_blocks f, gh_vector steps, float scale, float shift) {
  return f.shifted ? steps * scale + shift : steps * scale;
}

/* Numbers of a block from the `at`-th on, one for each lane: scale times code, plus shift. */
GH_FN gh_vector gh_numbers(const uint8_t *codes, const gh_blocks f, const int at, gh_vector table,
                           float scale, float shift) {
  if (f.bits == 8) return __builtin_convertvector(gh_from_bytes(codes + at, 1), gh_vector) * scale;
  const int half = f.numbers / 2, late = at >= half;
  gh_ints code = gh_from_bytes(codes + (late ? at - half : at), 0);
  if (late) code = (gh_ints)((gh_bits)code >> 4);
#ifdef __AVX512F__
  return __builtin_shuffle(table, code);  /* which looks at the lowest 4 bits alone */
#else
  const gh_vector x = __builtin_convertvector(code & 15, gh_vector);
  return f.shifted ? x * scale + shift : (x - (float)f.zero) * scale;
#endif
}

GH_FN float gh_packed_total(gh_vector v) {
#ifdef __AVX512F__
  return _mm512_reduce_add_ps((__m512)v);
#else
  float parts[GH_LANES];
  memcpy(parts, &v, sizeof parts);
  GH_HALVES(GH_LANES) if (k < h) parts[k] += parts[k + h];
  return parts[0];
#endif
}

/* `ins` rows of x, `depth` elements each, by `outs` rows of weights: y[at + i * y_row + o]. */
GH_FN void gh_packed_tile(const uint8_t *weights, const gh_blocks f, const float *x, int64_t depth,
                          const int outs, const int ins, void *y, int64_t at, int64_t y_row,
                          const int brief) {
  const int64_t blocks = depth / f.numbers, row = blocks * gh_block_bytes(f);
  const int whole = f.bits == 8 && f.header == 4;  /* one scale a row, which waits for the end */
  const gh_vector steps = gh_steps(f);
  gh_vector sum[GH_OUT][GH_IN] = {0};
  float scale[GH_OUT][GH_PART], shift[GH_OUT][GH_PART];
  for (int64_t first = 0; first < blocks; first += GH_PART) {
    const int count = blocks - first < GH_PART ? (int)(blocks - first) : GH_PART;
    if (!whole)
      GH_UNROLL for (int o = 0; o < outs; o++)
        gh_scales(weights + o * row + first * gh_block_bytes(f), f, count, scale[o], shift[o]);
    for (int b = 0; b < count; b++) {
      const uint8_t *codes = weights + (first + b) * gh_block_bytes(f) + f.header;
      const float *from = x + (first + b) * f.numbers;
      gh_vector table[GH_OUT];
      if (f.bits == 4)
        GH_UNROLL for (int o = 0; o < outs; o++) table[o] = gh_table(f, steps, scale[o][b], shift[o][b]);
      for (int c = 0; c < f.numbers; c += GH_LANES) {
        const uint8_t *ahead = codes + GH_FETCHED * outs * row + c * f.bits / 8;
        if (c * f.bits / 8 % 64 == 0)
          GH_UNROLL for (int o = 0; o < outs; o++) __builtin_prefetch(ahead + o * row, 0, 3);
        gh_vector right[GH_IN];
        GH_UNROLL for (int i = 0; i < ins; i++) right[i] = *(const gh_vector *)(from + i * depth + c);
        GH_UNROLL for (int o = 0; o < outs; o++) {
          const float own = whole ? 1 : scale[o][b], low = f.shifted ? shift[o][b] : 0;
          const gh_vector left = gh_numbers(codes + o * row, f, c, table[o], own, low);
          GH_UNROLL for (int i = 0; i < ins; i++) sum[o][i] += left * right[i];
        }
      }
    }
  }
  GH_UNROLL for (int o = 0; o < outs; o++) {
    const float last = whole ? gh_scale(weights + o * row, 1) : 1;
    GH_UNROLL for (int i = 0; i < ins; i++)
      gh_store_one(y, at + i * y_row + o, gh_packed_total(sum[o][i]) * last, brief);
  }
}

/* All rows of x by rows of weights from `first` on, at most GH_OUT of them. */
GH_FN void gh_packed_rows(const uint8_t *weights, const gh_blocks f, const float *x, int64_t rows,
                          int64_t depth, int64_t columns, int64_t first, void *y, const int brief) {
  const int64_t left = columns - first < GH_OUT ? columns - first : GH_OUT;
  const int64_t row = depth / f.numbers * gh_block_bytes(f);
  weights += first * row;
  for (int64_t i = 0; i < rows; i += GH_IN) {
    const int64_t ins = rows - i < GH_IN ? rows - i : GH_IN, at = i * columns + first;
    const float *from = x + i * depth;
#define GH_TILE(outs, ins) gh_packed_tile(weights, f, from, depth, outs, ins, y, at, columns, brief)
    if (left == GH_OUT && ins == 1) GH_TILE(GH_OUT, 1);
    else if (left == GH_OUT && ins == GH_IN) GH_TILE(GH_OUT, GH_IN);
    else
      for (int64_t j = 0; j < ins; j++, from += depth)
        for (int64_t o = 0; o < left; o++)
          gh_packed_tile(weights + o * row, f, from, depth, 1, 1, y, at + j * columns + o, columns, brief);
#undef GH_TILE
  }
}

/* A row of weights as numbers. */
GH_FN void gh_unpack_row(const uint8_t *weights, const gh_blocks f, int64_t depth, float *y) {
  const gh_vector steps = gh_steps(f);
  for (int64_t b = 0; b < depth / f.numbers; b++, weights += gh_block_bytes(f), y += f.numbers) {
    float scale, shift = 0;
    gh_scales(weights, f, 1, &scale, &shift);
    const gh_vector table = gh_table(f, steps, scale, shift);
    for (int c = 0; c < f.numbers; c += GH_LANES)
      *(gh_vector *)(y + c) = gh_numbers(weights + f.header, f, c, table, scale, shift);
  }
}
