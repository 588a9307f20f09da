/* Products of a single row by a matrix whose columns lie in one piece each: sums in registers, of
   some columns at a time, while the next ones are fetched. */
enum { GH_COLUMNS = 8, GH_LINE = 64 };

/* The sum of a vector's elements. */
GH_FN float gh_total(gh_vector v) {
  float sum = 0;
  for (int i = 0; i < GH_LANES; i++) sum += v[i];
  return sum;
}

/* `count` columns, `along` elements apart; the same elements of the next ones are fetched. */
GH_FN void gh_columns(const float *a, const float *b, int64_t along, int64_t depth, const int count,
                      float *out) {
  gh_vector sum[GH_COLUMNS] = {0};
  const int64_t whole = depth / GH_LANES * GH_LANES;
  for (int64_t k = 0; k < whole; k += GH_LANES) {
    const gh_vector left = *(const gh_vector *)(a + k);
    GH_UNROLL for (int j = 0; j < count; j++) {
      __builtin_prefetch(b + (j + count) * along + k);
      sum[j] += left * *(const gh_vector *)(b + j * along + k);
    }
  }
  GH_UNROLL for (int j = 0; j < count; j++) {
    float rest = gh_total(sum[j]);
    for (int64_t k = whole; k < depth; k++) rest += a[k] * b[j * along + k];
    out[j] = rest;
  }
}

/* All columns from `first` to `last`. */
GH_FN void gh_one_row(const float *a, const float *b, int64_t along, int64_t depth, int64_t first,
                      int64_t last, float *out) {
  int64_t j = first;
  for (; j + GH_COLUMNS <= last; j += GH_COLUMNS)
    gh_columns(a, b + j * along, along, depth, GH_COLUMNS, out + j);
  for (; j < last; j++) gh_columns(a, b + j * along, along, depth, 1, out + j);
}
