/* Products of a few rows by a matrix whose columns lie in one piece each: sums in registers, of some
   columns at a time, while the next ones are fetched. */

/* The sum of a vector's elements. */
GH_FN float gh_total(gh_vector v) {
  float sum = 0;
  for (int i = 0; i < GH_LANES; i++) sum += v[i];
  return sum;
}

/* `rows` rows by `count` columns, `along` elements apart; the same elements of the next columns are
   fetched meanwhile. */
GH_FN void gh_columns(const float *a, const float *b, int64_t along, int64_t depth, const int rows,
                      const int count, float *out, int64_t columns) {
  gh_vector sum[8][8] = {0};
  const int64_t whole = depth / GH_LANES * GH_LANES;
  for (int64_t k = 0; k < whole; k += GH_LANES) {
    gh_vector right[8];
    GH_UNROLL for (int j = 0; j < count; j++) {
      __builtin_prefetch(b + (j + count) * along + k);
      right[j] = *(const gh_vector *)(b + j * along + k);
    }
    GH_UNROLL for (int i = 0; i < rows; i++) {
      const gh_vector left = *(const gh_vector *)(a + i * depth + k);
      GH_UNROLL for (int j = 0; j < count; j++) sum[i][j] += left * right[j];
    }
  }
  GH_UNROLL for (int i = 0; i < rows; i++)
    GH_UNROLL for (int j = 0; j < count; j++) {
      float rest = gh_total(sum[i][j]);
      for (int64_t k = whole; k < depth; k++) rest += a[i * depth + k] * b[j * along + k];
      out[i * columns + j] = rest;
    }
}

/* All columns from `first` to `last`, `count` at a time. */
GH_FN void gh_some_rows(const float *a, const float *b, int64_t along, int64_t depth, int64_t first,
                       int64_t last, const int rows, const int count, float *out, int64_t columns) {
  int64_t j = first;
  for (; j + count <= last; j += count)
    gh_columns(a, b + j * along, along, depth, rows, count, out + j, columns);
  for (; j < last; j++) gh_columns(a, b + j * along, along, depth, rows, 1, out + j, columns);
}
