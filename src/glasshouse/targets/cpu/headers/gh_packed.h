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

/* How a row lies: a scale, and perhaps a shift, before the codes of each block. In formats with groups,
   Q4_K and Q6_K, so many numbers of a block share a scale of few bits. */
typedef struct {
  int bits, header, numbers, zero, shifted, group, bytes;
} gh_blocks;
typedef uint32_t gh_words __attribute__((vector_size(16), may_alias));
typedef uint8_t gh_codes __attribute__((vector_size(32), aligned(1), may_alias));

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
  const int step = f.bytes;
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

/* The numbers of codes, of which the lowest 4 bits count. */
GH_FN gh_vector gh_looked_up(gh_vector table, gh_ints code) {
#ifdef __AVX512F__
  return (gh_vector)_mm512_permutexvar_ps((__m512i)code, (__m512)table);  /* reads these bits alone */
#endif
  return __builtin_shuffle(table, code & (GH_LANES - 1));
}

/* Numbers of a block from the `at`-th on, one for each lane: scale times code, plus shift. */
GH_FN gh_vector gh_numbers(const uint8_t *codes, const gh_blocks f, const int at, gh_vector table,
                           float scale, float shift) {
  if (f.bits == 8) return __builtin_convertvector(gh_from_bytes(codes + at, 1), gh_vector) * scale;
  const int half = f.numbers / 2, late = at >= half;
  gh_ints code = gh_from_bytes(codes + (late ? at - half : at), 0);
  if (late) code = (gh_ints)((gh_bits)code >> 4);
#ifdef __AVX512F__
  return gh_looked_up(table, code);
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

/* The codes of a block with groups, one a byte: Q4_K has those of two groups in each 32 bytes; Q6_K has four
   rows of 32 in each half, whose low 4 and high 2 bits lie apart. */
GH_FN void gh_spread_codes(const uint8_t *block, const gh_blocks f, uint8_t *codes) {
  gh_codes *to = (gh_codes *)codes;
  if (f.bits == 4) {
    const gh_codes *from = (const gh_codes *)(block + f.header);
    GH_UNROLL for (int i = 0; i < 4; i++) {
      const gh_codes both = from[i];
      to[2 * i] = both & 15;
      to[2 * i + 1] = both >> 4;
    }
    return;
  }
  GH_UNROLL for (int half = 0; half < 2; half++, to += 4) {
    const gh_codes *low = (const gh_codes *)block + 2 * half, high = ((const gh_codes *)block)[4 + half];
    GH_UNROLL for (int i = 0; i < 2; i++) {
      const gh_codes both = low[i];
      to[i] = (both & 15 | (high >> 2 * i & 3) << 4) - (uint8_t)f.zero;
      to[i + 2] = (both >> 4 | (high >> (2 * i + 4) & 3) << 4) - (uint8_t)f.zero;
    }
  }
}

/* The scales of a block's groups; in Q4_K eight, then as many shifts. */
GH_FN void gh_group_scales(const uint8_t *block, const gh_blocks f, float *scale) {
  if (f.bits == 4) {  /* of 6 bits: four of each kind whole, then four in two parts */
    gh_words head;
    memcpy(&head, block, sizeof head);
    const gh_words low = {0x3f3f3f3f, 0x0f0f0f0f, 0x3f3f3f3f, 0x0f0f0f0f}, high = {0, 0x30303030, 0, 0x30303030};
    const gh_words right = {0, 0, 0, 4}, own = {1, 3, 2, 3}, other = {1, 1, 2, 2};
    const gh_words words = (__builtin_shuffle(head, own) >> right & low)
                         | (__builtin_shuffle(head, other) >> 2 & high);
    const float first = gh_scale(block, 0), second = -gh_scale(block + 2, 0);
    GH_UNROLL for (int i = 0; i < 16; i += GH_LANES) {
      gh_bits early;
      GH_UNROLL for (int k = 0; k < GH_LANES; k++) early[k] = i + k < 8 ? UINT32_MAX : 0;
      const gh_vector none = {0}, factor = (gh_vector)(((gh_bits)(none + first) & early)
                                                     | ((gh_bits)(none + second) & ~early));
      const gh_ints few = gh_from_bytes((const uint8_t *)&words + i, 0);
      *(gh_vector *)(scale + i) = __builtin_convertvector(few, gh_vector) * factor;
    }
    return;
  }
  const float first = gh_scale(block + f.bytes - 2, 0);
  GH_UNROLL for (int i = 0; i < 16; i += GH_LANES)
    *(gh_vector *)(scale + i) = __builtin_convertvector(gh_from_bytes(block + 192 + i, 1), gh_vector) * first;
}

/* What gh_packed_tile computes, of weights whose blocks have groups. */
GH_FN void gh_grouped_tile(const uint8_t *weights, const gh_blocks f, const float *x, int64_t depth,
                           const int outs, const int ins, void *y, int64_t at, int64_t y_row,
                           const int brief) {
  const int64_t blocks = depth / f.numbers, row = blocks * f.bytes;
  const int looked_up = f.bits == 4 && GH_LANES == 16;
  const gh_vector steps = gh_steps(f);
  gh_vector sum[GH_OUT][GH_IN] = {0};
  uint8_t codes[GH_OUT][256];
  float scale[GH_OUT][16], *shift[GH_OUT];
  GH_UNROLL for (int o = 0; o < outs; o++) shift[o] = scale[o] + 8;
  for (int64_t b = 0; b < blocks; b++, weights += f.bytes, x += f.numbers) {
    GH_UNROLL for (int o = 0; o < outs; o++) {
      const uint8_t *block = weights + o * row, *ahead = block + GH_FETCHED * outs * row;
      for (int c = 0; c < f.bytes; c += 64) __builtin_prefetch(ahead + c, 0, 3);
      if (!looked_up) gh_spread_codes(block, f, codes[o]);
      gh_group_scales(block, f, scale[o]);
    }
    if (looked_up) {
      for (int c = 0; c < f.numbers / 2; c += GH_LANES) {
        const int g = c / f.group * 2, at = g * f.group + c % f.group;  /* of the low halves of bytes */
        gh_vector right[2][GH_IN];
        GH_UNROLL for (int i = 0; i < ins; i++) {
          right[0][i] = *(const gh_vector *)(x + i * depth + at);
          right[1][i] = *(const gh_vector *)(x + i * depth + at + f.group);
        }
        GH_UNROLL for (int o = 0; o < outs; o++) {
          const gh_ints code = gh_from_bytes(weights + o * row + f.header + c, 0);
          const gh_vector low = gh_looked_up(gh_table(f, steps, scale[o][g], shift[o][g]), code);
          const gh_vector table = gh_table(f, steps, scale[o][g + 1], shift[o][g + 1]);
          const gh_vector high = gh_looked_up(table, (gh_ints)((gh_bits)code >> 4));
          GH_UNROLL for (int i = 0; i < ins; i++) sum[o][i] += low * right[0][i];
          GH_UNROLL for (int i = 0; i < ins; i++) sum[o][i] += high * right[1][i];
        }
      }
      continue;
    }
    for (int c = 0; c < f.numbers; c += GH_LANES) {
      gh_vector right[GH_IN];
      GH_UNROLL for (int i = 0; i < ins; i++) right[i] = *(const gh_vector *)(x + i * depth + c);
      GH_UNROLL for (int o = 0; o < outs; o++) {
        const gh_vector code = __builtin_convertvector(gh_from_bytes(codes[o] + c, 1), gh_vector);
        const float own = scale[o][c / f.group];
        const gh_vector left = f.shifted ? code * own + shift[o][c / f.group] : code * own;
        GH_UNROLL for (int i = 0; i < ins; i++) sum[o][i] += left * right[i];
      }
    }
  }
  GH_UNROLL for (int o = 0; o < outs; o++)
    GH_UNROLL for (int i = 0; i < ins; i++)
      gh_store_one(y, at + i * y_row + o, gh_packed_total(sum[o][i]), brief);
}

/* `ins` rows of x, `depth` elements each, by `outs` rows of weights: y[at + i * y_row + o]. */
GH_FN void gh_packed_tile(const uint8_t *weights, const gh_blocks f, const float *x, int64_t depth,
                          const int outs, const int ins, void *y, int64_t at, int64_t y_row,
                          const int brief) {
  if (f.group) {
    gh_grouped_tile(weights, f, x, depth, outs, ins, y, at, y_row, brief);
    return;
  }
  const int64_t blocks = depth / f.numbers, row = blocks * f.bytes;
  const int whole = f.bits == 8 && f.header == 4;  /* one scale a row, which waits for the end */
  const gh_vector steps = gh_steps(f);
  gh_vector sum[GH_OUT][GH_IN] = {0};
  float scale[GH_OUT][GH_PART], shift[GH_OUT][GH_PART];
  for (int64_t first = 0; first < blocks; first += GH_PART) {
    const int count = blocks - first < GH_PART ? (int)(blocks - first) : GH_PART;
    if (!whole)
      GH_UNROLL for (int o = 0; o < outs; o++)
        gh_scales(weights + o * row + first * f.bytes, f, count, scale[o], shift[o]);
    for (int b = 0; b < count; b++) {
      const uint8_t *codes = weights + (first + b) * f.bytes + f.header;
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
  const int64_t row = depth / f.numbers * f.bytes;
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
  for (int64_t b = 0; b < depth / f.numbers; b++, weights += f.bytes, y += f.numbers) {
    if (f.group) {
      uint8_t codes[256];
      float scales[16];
      gh_spread_codes(weights, f, codes);
      gh_group_scales(weights, f, scales);
      for (int c = 0; c < f.numbers; c += GH_LANES) {
        const gh_vector code = __builtin_convertvector(gh_from_bytes(codes + c, 1), gh_vector);
        const float own = scales[c / f.group];
        *(gh_vector *)(y + c) = f.shifted ? code * own + scales[8 + c / f.group] : code * own;
      }
      continue;
    }
    float scale, shift = 0;
    gh_scales(weights, f, 1, &scale, &shift);
    const gh_vector table = gh_table(f, steps, scale, shift);
    for (int c = 0; c < f.numbers; c += GH_LANES)
      *(gh_vector *)(y + c) = gh_numbers(weights + f.header, f, c, table, scale, shift);
  }
}
