/* Products of a few rows by a matrix whose columns lie in one piece each: sums in registers, of some
   columns at a time, while the next ones are fetched. The matrix is float32 or (`brief`) bfloat16, the
   rows are float32, the sums too. */
typedef uint32_t gh_pairs __attribute__((vector_size(4 * GH_LANES), aligned(2), may_alias));

/* The sum of a vector's elements. */
GH_FN float gh_total(gh_vector v) {
  float sum = 0;
  for (int i = 0; i < GH_LANES; i++) sum += v[i];
  return sum;
}

/* `rows` rows by `count` columns, `along` elements apart; the same elements of the next columns are
   fetched meanwhile. */
GH_FN void gh_columns(const float *a, const void *b, int64_t along, int64_t depth, const int rows,
                      const int count, void *out, int64_t at, int64_t columns, const int brief) {
  gh_vector sum[8][8] = {0};
  const int step = brief ? 2 * GH_LANES : GH_LANES, size = brief ? 2 : 4;
  const int64_t whole = depth / step * step;
  for (int64_t k = 0; k < whole; k += step) {
    gh_vector right[2][8];
    GH_UNROLL for (int j = 0; j < count; j++) {
      const char *from = (const char *)b + (j * along + k) * size;
      __builtin_prefetch(from + count * along * size);
      if (brief) {
        const gh_bits pairs = (gh_bits)*(const gh_pairs *)from;
        right[0][j] = (gh_vector)(pairs << 16);
        right[1][j] = (gh_vector)(pairs & 0xffff0000);
      } else {
        right[0][j] = *(const gh_vector *)from;
      }
    }
    GH_UNROLL for (int half = 0; half <= brief; half++)
      GH_UNROLL for (int i = 0; i < rows; i++) {
        const gh_vector left = *(const gh_vector *)(a + i * depth + k + half * GH_LANES);
        GH_UNROLL for (int j = 0; j < count; j++) sum[i][j] += left * right[half][j];
      }
  }
  GH_UNROLL for (int i = 0; i < rows; i++)
    GH_UNROLL for (int j = 0; j < count; j++) {
      float rest = gh_total(sum[i][j]);
      for (int64_t k = whole; k < depth; k++) rest += a[i * depth + k] * gh_load_one(b, j * along + k, brief);
      gh_store_one(out, at + i * columns + j, rest, brief);
    }
}

/* All columns from `first` to `last`, `count` at a time. */
GH_FN void gh_some_rows(const float *a, const void *b, int64_t along, int64_t depth, int64_t first,
                       int64_t last, const int rows, const int count, void *out, int64_t columns,
                       const int brief) {
  const int64_t size = brief ? 2 : 4;
  int64_t j = first;
  for (; j + count <= last; j += count)
    gh_columns(a, (const char *)b + j * along * size, along, depth, rows, count, out, j, columns, brief);
  for (; j < last; j++)
    gh_columns(a, (const char *)b + j * along * size, along, depth, rows, 1, out, j, columns, brief);
}

/* Rows of bfloat16 in float32, as gh_columns reads them: of each two vectors the elements at even places,
   then those at odd ones; the last few, which fill no two vectors, in their order. */
GH_FN void gh_spread_rows(const uint16_t *from, int64_t rows, int64_t depth, float *to) {
  const int step = 2 * GH_LANES;
  const int64_t whole = depth / step * step;
  for (int64_t i = 0; i < rows; i++, from += depth, to += depth) {
    for (int64_t k = 0; k < whole; k += step) {
      const gh_bits pairs = (gh_bits)*(const gh_pairs *)(from + k);
      *(gh_vector *)(to + k) = (gh_vector)(pairs << 16);
      *(gh_vector *)(to + k + GH_LANES) = (gh_vector)(pairs & 0xffff0000);
    }
    for (int64_t k = whole; k < depth; k++) to[k] = gh_bf16_to_f32(from[k]);
  }
}
