/* c = a b in REAL: (M, K) by (K, N), elements of a and b any number of elements apart. A panel of b,
   16 columns by up to 256 terms, is brought together on the stack; four rows of a meet it, their 64
   sums in registers. Terms are added up in their order, so nothing depends on the processor. */
enum { GH_WIDE_REAL = 16, GH_TALL_REAL = 4, GH_DEEP_REAL = 256 };

GH_FN void gh_panel_REAL(const REAL *b, int64_t down, int64_t along, int64_t depth, int64_t wide, REAL *to) {
  for (int64_t k = 0; k < depth; k++)
    for (int64_t j = 0; j < GH_WIDE_REAL; j++)
      to[k * GH_WIDE_REAL + j] = j < wide ? b[k * down + j * along] : 0;
}

GH_FN void gh_rows_REAL(const REAL *a, int64_t over, int64_t term, const REAL *panel, int64_t depth,
                        const int tall, const int wide, REAL *c, int64_t c_row, int add) {
  REAL sum[GH_TALL_REAL][GH_WIDE_REAL] = {{0}};
  for (int i = 0; add && i < tall; i++)
    for (int j = 0; j < wide; j++) sum[i][j] = c[i * c_row + j];
  for (int64_t k = 0; k < depth; k++)
    for (int i = 0; i < tall; i++) {
      const REAL x = a[i * over + k * term];
      for (int j = 0; j < GH_WIDE_REAL; j++) sum[i][j] += x * panel[k * GH_WIDE_REAL + j];
    }
  for (int i = 0; i < tall; i++)
    for (int j = 0; j < wide; j++) c[i * c_row + j] = sum[i][j];
}

static void gh_product_REAL(const REAL *a, const REAL *b, REAL *c, int64_t rows, int64_t depth,
                            int64_t columns, int64_t a_row, int64_t a_term, int64_t b_term,
                            int64_t b_column) {
  #pragma omp parallel for schedule(static) if(rows * depth * columns > 200000)
  for (int64_t j = 0; j < columns; j += GH_WIDE_REAL) {
    const int wide = columns - j < GH_WIDE_REAL ? (int)(columns - j) : GH_WIDE_REAL;
    REAL panel[GH_DEEP_REAL * GH_WIDE_REAL];
    for (int64_t i = 0; !depth && i < rows; i++)
      for (int k = 0; k < wide; k++) c[i * columns + j + k] = 0;
    for (int64_t k = 0; k < depth; k += GH_DEEP_REAL) {
      const int64_t deep = depth - k < GH_DEEP_REAL ? depth - k : GH_DEEP_REAL;
      const REAL *from = a + k * a_term;
      REAL *to = c + j;
      gh_panel_REAL(b + k * b_term + j * b_column, b_term, b_column, deep, wide, panel);
      for (int64_t i = 0; i < rows; i += GH_TALL_REAL) {
        const int tall = rows - i < GH_TALL_REAL ? (int)(rows - i) : GH_TALL_REAL;
        if (tall == GH_TALL_REAL)
          gh_rows_REAL(from + i * a_row, a_row, a_term, panel, deep, GH_TALL_REAL, wide, to + i * columns,
                       columns, k > 0);
        else
          gh_rows_REAL(from + i * a_row, a_row, a_term, panel, deep, tall, wide, to + i * columns, columns, k > 0);
      }
    }
  }
}
