/* Products of few rows by a matrix that was brought into panels of some vectors' width, one after the
   other, each with the elements of a row of the panel side by side: a core reads its panels from the
   first to the last element. The last panel may be narrower. */
enum {
  GH_WIDE = 3,                       /* vectors of a panel */
  GH_TALL = GH_LANES == 16 ? 8 : 4,  /* rows whose sums by a panel are in registers */
  GH_DEPTH = 1024                    /* rows of a panel at a time */
};

/* The vectors of the panel that begins with column `first`. */
GH_FN int gh_wide(int64_t columns, int64_t first) {
  const int64_t left = (columns - first) / GH_LANES;
  return left < GH_WIDE ? (int)left : GH_WIDE;
}

/* The panel that begins with column `first` of a matrix whose element (k, j) lies at
   b[k * down + j * along]: squares are transposed in registers where a column lies in one piece. */
GH_FN void gh_panel(const float *b, int64_t down, int64_t along, int64_t depth, int64_t columns,
                    int64_t first, float *to) {
  const int64_t width = gh_wide(columns, first) * GH_LANES;
  b += first * along;
  to += first * depth;
  if (down == 1) {
    gh_strip(b, along, width, depth, to, width, width);
    return;
  }
  for (int64_t k = 0; k < depth; k++)
    for (int64_t j = 0; j < width; j++) to[k * width + j] = b[k * down + j * along];
}

/* `rows` rows by a part of a panel, in registers: c = a b, or c += a b. Meanwhile what is read from
   `next` on, `lines` of the cache for each row of the panel, is fetched. */
GH_FN void gh_few_rows(const float *a, int64_t a_row, const float *b, const char *next, const int lines,
                       float *c, int64_t c_row, int64_t depth, const int rows, const int wide, int add) {
  gh_vector sum[GH_TALL][GH_WIDE] = {0};
  for (int64_t k = 0; k < depth; k++) {
    gh_vector right[GH_WIDE];
    GH_UNROLL for (int j = 0; j < wide; j++) right[j] = ((const gh_vector *)(b + k * wide * GH_LANES))[j];
    for (int i = 0; i < lines; i++) __builtin_prefetch(next + (k * lines + i) * 64, 0, 3);
    GH_UNROLL for (int i = 0; i < rows; i++)
      GH_UNROLL for (int j = 0; j < wide; j++) sum[i][j] += a[i * a_row + k] * right[j];
  }
  GH_UNROLL for (int i = 0; i < rows; i++)
    GH_UNROLL for (int j = 0; j < wide; j++) {
      gh_vector *to = (gh_vector *)(c + i * c_row) + j;
      if (add) sum[i][j] += *to;
      *to = sum[i][j];
    }
}

/* All rows by a panel of `wide` vectors: in parts that stay in the second cache while the rows meet them. */
GH_FN void gh_by_panel(const float *a, const int rows, int64_t depth, const float *b, const int wide,
                       float *c, int64_t columns) {
  const int tiles = (rows + GH_TALL - 1) / GH_TALL, lines = (wide + tiles - 1) / tiles;
  for (int64_t k = 0; k < depth; k += GH_DEPTH) {
    const int64_t part = k + GH_DEPTH < depth ? GH_DEPTH : depth - k;
    const float *now = b + k * wide * GH_LANES;
    const char *next = (const char *)(now + part * wide * GH_LANES);
    for (int i = 0; i + GH_TALL <= rows; i += GH_TALL)
      gh_few_rows(a + i * depth + k, depth, now, next + i / GH_TALL * part * lines * 64, lines,
                  c + i * columns, columns, part, GH_TALL, wide, k > 0);
    const int done = rows / GH_TALL * GH_TALL;
    if (done < rows)
      gh_few_rows(a + done * depth + k, depth, now, next + done / GH_TALL * part * lines * 64, lines,
                  c + done * columns, columns, part, rows - done, wide, k > 0);
  }
}

/* All rows by the panel that begins with column `first`. */
GH_FN void gh_rows(const float *a, const float *panels, const int rows, int64_t depth, int64_t columns,
                   int64_t first, float *c) {
  const int wide = gh_wide(columns, first);
  panels += first * depth;
  c += first;
  if (wide == 3) gh_by_panel(a, rows, depth, panels, 3, c, columns);
  else if (wide == 2) gh_by_panel(a, rows, depth, panels, 2, c, columns);
  else gh_by_panel(a, rows, depth, panels, 1, c, columns);
}
