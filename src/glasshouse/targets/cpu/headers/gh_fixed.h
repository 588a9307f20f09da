/* Products whose matrix has its rows in one piece each: an element is the sum over them in their order,
   whatever is computed beside it. gh_few_rows.h has those whose columns lie in one piece. */

/* `rows` rows of a by `wide` vectors of columns of b, whose rows are `over` elements apart. */
GH_FN void gh_down(const float *a, const float *b, int64_t over, int64_t depth, const int rows,
                   const int wide, float *out, int64_t columns) {
  gh_vector sum[6][4] = {0};
  for (int64_t k = 0; k < depth; k++) {
    gh_vector right[4];
    GH_UNROLL for (int j = 0; j < wide; j++)
      right[j] = *(const gh_vector *)(b + k * over + j * GH_LANES);
    GH_UNROLL for (int i = 0; i < rows; i++) {
      const gh_vector left = a[i * depth + k] + (gh_vector){0};
      GH_UNROLL for (int j = 0; j < wide; j++) sum[i][j] += left * right[j];
    }
  }
  GH_UNROLL for (int i = 0; i < rows; i++)
    GH_UNROLL for (int j = 0; j < wide; j++)
      *(gh_vector *)(out + i * columns + j * GH_LANES) = sum[i][j];
}

/* `rows` rows of a by the columns of b from `first` to `last`. */
GH_FN void gh_down_rows(const float *a, const float *b, int64_t over, int64_t depth, int64_t first,
                        int64_t last, const int rows, float *out, int64_t columns) {
  int64_t j = first;
  for (; j + 4 * GH_LANES <= last; j += 4 * GH_LANES)
    gh_down(a, b + j, over, depth, rows, 4, out + j, columns);
  for (; j + GH_LANES <= last; j += GH_LANES) gh_down(a, b + j, over, depth, rows, 1, out + j, columns);
  for (; j < last; j++)
    for (int i = 0; i < rows; i++) {
      float sum = 0;
      for (int64_t k = 0; k < depth; k++) sum += a[i * depth + k] * b[k * over + j];
      out[i * columns + j] = sum;
    }
}
