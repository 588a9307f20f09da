/* The gradient of a convolution's weights as products of matrices: for each weight of a kernel, the
   results' gradient, turned, by the elements that this weight met.

   Data is channels last. Positions of results are taken in blocks, which are brought into panels: of the
   gradient `rows` channels made, of the data two vectors of channels taken. Products of two panels are
   summed in registers, and then added to what the blocks before gave. A kernel
   (targets/cpu/kernels/weight_gradients.py) keeps its sizes in a constant `gh_gradient`, which is folded into
   the functions here, all of them inlined. */
enum { GH_COLUMNS = 2 * GH_LANES, GH_PANEL_ROW = GH_LANES, GH_LINE = 64 };

/* (images, height, width, channels) -> (images, out_height, out_width, out_channels) by kernels of
   `rows` x `columns`; elements before the first: `top`, `left`. */
typedef struct {
  int64_t images, height, width, channels, out_height, out_width, out_channels, rows, columns, top, left;
  int64_t row_step, column_step, row_gap, column_gap;
} gh_gradient;

/* Memory to fetch while products are computed: from `at` to `end`, a line of the cache at a time. */
typedef struct { const char *at, *end; } gh_ahead;

/* Panel `to` of `rows` channels of `count` positions, from `g` on. */
GH_FN void gh_gradient_rows(const gh_gradient *s, const float *g, float *to, int64_t count,
                            const int rows) {
  for (int64_t p = 0; p < count; p++)
    __builtin_memcpy(to + p * GH_PANEL_ROW, g + p * s->out_channels, 4 * rows);
}

/* Panel `to` of `size` channels, from `c` on, of the elements that weight (i, j) of a kernel met at `count`
   positions from `first` on. */
GH_FN void gh_gradient_columns(const gh_gradient *s, const float *x, float *to, int64_t first,
                               int64_t count, int64_t i, int64_t j, int64_t c, const int size) {
  int64_t column = first % s->out_width, row = first / s->out_width % s->out_height;
  int64_t image = first / s->out_width / s->out_height;
  for (int64_t p = 0; p < count; p++) {
    const int64_t y = row * s->row_step - s->top + i * s->row_gap;
    const int64_t z = column * s->column_step - s->left + j * s->column_gap;
    const int inside = y >= 0 && y < s->height && z >= 0 && z < s->width;
    const float *from = x + ((image * s->height + y) * s->width + z) * s->channels + c;
    if (inside) __builtin_memcpy(to + p * GH_COLUMNS, from, 4 * size);
    else __builtin_memset(to + p * GH_COLUMNS, 0, 4 * size);
    if (++column == s->out_width) {
      column = 0;
      if (++row == s->out_height) row = 0, image++;
    }
  }
}

/* rows x `size` results: to = a b, or to += a b, of two panels. */
GH_FN void gh_gradient_product(const float *a, const float *b, float *to, int64_t to_row,
                               int64_t count, const int rows, const int size, int add,
                               gh_ahead *ahead) {
  const int vectors = (size + GH_LANES - 1) / GH_LANES;
  gh_vector sum[GH_PANEL_ROW][2] = {0};
  const char *at = ahead->at;
  const int64_t line = at < ahead->end ? GH_LINE : 0;
  for (int64_t p = 0; p < count; p++) {
    gh_vector right[2];
    GH_UNROLL for (int k = 0; k < vectors; k++)
      right[k] = ((const gh_vector *)(b + p * GH_COLUMNS))[k];
    GH_UNROLL for (int i = 0; i < rows; i++)
      GH_UNROLL for (int k = 0; k < vectors; k++) sum[i][k] += a[p * GH_PANEL_ROW + i] * right[k];
    __builtin_prefetch(at);
    at += line;
  }
  ahead->at = at;
  GH_UNROLL for (int i = 0; i < rows; i++)
    GH_UNROLL for (int k = 0; k < vectors; k++) {
      const int left = size - k * GH_LANES, some = left < GH_LANES ? left : GH_LANES;
      float *one = to + i * to_row + k * GH_LANES;
      if (add) sum[i][k] += gh_get(one, some);
      gh_put(one, sum[i][k], some);
    }
}

/* A thread's share: panels of rows from `row` to `row_end`, and of columns, the weights of a kernel
   one after the other. */
typedef struct { int64_t row, row_end, column, column_end; } gh_share;

GH_FN gh_share gh_gradient_share(int64_t row_panels, int64_t column_panels) {
  const int64_t thread = omp_get_thread_num(), threads = omp_get_num_threads();
  gh_share share = {0, row_panels, 0, column_panels};
  if (row_panels > column_panels) {
    share.row = thread * row_panels / threads;
    share.row_end = (thread + 1) * row_panels / threads;
  } else {
    share.column = thread * column_panels / threads;
    share.column_end = (thread + 1) * column_panels / threads;
  }
  return share;
}

/* A block from position `first` on: all panels of rows in `a` by the panel of `size` channels from `c` on
   that weight (i, j) of a kernel met. */
GH_FN void gh_gradient_panel(const gh_gradient *s, const float *x, const float *a, float *b, float *sums,
                             const gh_share *share, int64_t first, int64_t count, int64_t i,
                             int64_t j, int64_t c, const int64_t block, const int rows,
                             const int rest, const int size, gh_ahead *of_x, gh_ahead *of_g) {
  gh_gradient_columns(s, x, b, first, count, i, j, c, size);
  float *to = sums + (i * s->columns + j) * s->out_channels * s->channels + c;
  const int64_t whole = s->out_channels / rows;
  for (int64_t q = share->row; q < share->row_end; q++) {
    gh_ahead *ahead = of_g->at < of_g->end ? of_g : of_x;
    const float *panel = a + q * block * GH_PANEL_ROW;
    float *at = to + q * rows * s->channels;
    if (q < whole) gh_gradient_product(panel, b, at, s->channels, count, rows, size, first > 0, ahead);
    else gh_gradient_product(panel, b, at, s->channels, count, rest, size, first > 0, ahead);
  }
}

/* This thread's share of all sums, (rows, columns, out_channels, channels), with its memory `work` for
   panels of `block` positions. The last of the panels of `rows` channels has `rest`, if not 0. */
GH_FN void gh_gradient_sums(const gh_gradient *s, const float *x, const float *g, float *sums, float *work,
                            const int64_t block, const int rows, const int rest) {
  const int64_t positions = s->images * s->out_height * s->out_width, whole = s->out_channels / rows;
  const int64_t taken = (s->channels + GH_COLUMNS - 1) / GH_COLUMNS, last = s->channels % GH_COLUMNS;
  const gh_share share = gh_gradient_share(whole + (rest > 0), s->rows * s->columns * taken);
  const int in_order = s->height == s->out_height && s->width == s->out_width && s->rows * s->columns == 1;
  float *b = work, *a = work + block * GH_COLUMNS;
  for (int64_t first = 0; first < positions; first += block) {
    const int64_t left = positions - first, count = left < block ? left : block;
    const int64_t next = first + count, more = positions - next < block ? positions - next : block;
    const float *from = g + first * s->out_channels, *g_next = g + next * s->out_channels;
    for (int64_t q = share.row; q < share.row_end; q++)
      if (q < whole) gh_gradient_rows(s, from + q * rows, a + q * block * GH_PANEL_ROW, count, rows);
      else gh_gradient_rows(s, from + q * rows, a + q * block * GH_PANEL_ROW, count, rest);
    gh_ahead of_g = {(const char *)g_next, (const char *)(g_next + more * s->out_channels)};
    const float *x_next = x + (in_order ? next : 0) * s->channels;
    gh_ahead of_x = {(const char *)x_next, (const char *)(x_next + (in_order ? more : 0) * s->channels)};
    for (int64_t n = share.column; n < share.column_end; n++) {
      const int64_t weight = n / taken, i = weight / s->columns, j = weight % s->columns;
      const int64_t c = n % taken * GH_COLUMNS;
      if (c + GH_COLUMNS <= s->channels)
        gh_gradient_panel(s, x, a, b, sums, &share, first, count, i, j, c, block, rows, rest,
                          GH_COLUMNS, &of_x, &of_g);
      else
        gh_gradient_panel(s, x, a, b, sums, &share, first, count, i, j, c, block, rows, rest, (int)last,
                          &of_x, &of_g);
    }
  }
}

/* The gradient of the kernels that make channel k, (channels, rows, columns), of the sums. */
GH_FN void gh_gradient_results(const gh_gradient *s, const float *sums, float *dw, int64_t k) {
  const int64_t weights = s->rows * s->columns, step = s->out_channels * s->channels;
  for (int64_t c = 0; c < s->channels; c++)
    for (int64_t i = 0; i < weights; i++)
      dw[(k * s->channels + c) * weights + i] = sums[i * step + k * s->channels + c];
}
