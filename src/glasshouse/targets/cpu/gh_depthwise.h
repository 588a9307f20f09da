/* Gradients of depthwise convolutions, of which each channel has a kernel of its own. Data is channels
   last, float32 or bfloat16, and there are at least as many channels as lanes; what is summed is float32.

   Channels go in vectors, several of them at a time. The last vector ends with the last channel: where
   it overlaps the one before, channels are computed twice, alike. In scratch memory each vector has a
   place of its own. */

/* (images, height, width, channels) -> (images, out_height, out_width, channels), by kernels of
   rows x columns, `step` apart, of elements `gap` apart; elements before the first: `top`, `left`. */
typedef struct {
  int64_t height, width, channels, out_height, out_width, rows, columns;
  int64_t row_step, column_step, row_gap, column_gap, top, left;
  int brief; /* bfloat16, not float32 */
} gh_depthwise;

GH_FN int64_t gh_first_channel(const gh_depthwise *s, int64_t vector) {
  const int64_t last = s->channels - GH_LANES, first = vector * GH_LANES;
  return first < last ? first : last;
}

/* One row of the kernels' gradients from one row of elements `x` and one of gradients `g`, added to
   `sum`: for each column of the kernels `plane` floats, of which these are `vectors` vectors. */
GH_FN void gh_depthwise_row(const gh_depthwise *s, const void *x, const void *g, int64_t at, int64_t to,
                            float *sum, int64_t plane, const int columns, const int vectors) {
  gh_vector total[columns * vectors];
  GH_UNROLL
  for (int j = 0; j < columns * vectors; j++) total[j] = (gh_vector){0};
  for (int64_t i = 0; i < s->out_width; i++) {
    const int64_t begin = i * s->column_step - s->left;
    const int inside = begin >= 0 && begin + (columns - 1) * s->column_gap < s->width;
    gh_vector slope[vectors];
    GH_UNROLL
    for (int v = 0; v < vectors; v++)
      slope[v] = gh_load(g, to + i * s->channels + v * GH_LANES, GH_LANES, s->brief);
    GH_UNROLL
    for (int k = 0; k < columns; k++) {
      const int64_t column = begin + k * s->column_gap;
      if (!inside && (column < 0 || column >= s->width)) continue;
      GH_UNROLL
      for (int v = 0; v < vectors; v++)
        total[k * vectors + v] += slope[v] * gh_load(x, at + column * s->channels + v * GH_LANES, GH_LANES, s->brief);
    }
  }
  GH_UNROLL
  for (int k = 0; k < columns; k++)
    GH_UNROLL
    for (int v = 0; v < vectors; v++) *(gh_vector *)(sum + k * plane + v * GH_LANES) += total[k * vectors + v];
}

/* The sums of one row of gradients `j` of an image, for all kernels: `sum` is (rows, columns, plane). */
GH_FN void gh_depthwise_sums(const gh_depthwise *s, const void *x, const void *g, int64_t image, int64_t j,
                             float *sum, int64_t plane, const int columns, const int vectors) {
  const int64_t count = plane / GH_LANES, whole = s->channels / GH_LANES;
  for (int64_t r = 0; r < s->rows; r++) {
    const int64_t row = j * s->row_step + r * s->row_gap - s->top;
    if (row < 0 || row >= s->height) continue;
    const int64_t at = (image * s->height + row) * s->width * s->channels;
    const int64_t to = (image * s->out_height + j) * s->out_width * s->channels;
    float *const own = sum + r * columns * plane;
    int64_t v = 0;
    for (; v + vectors <= whole; v += vectors)
      gh_depthwise_row(s, x, g, at + v * GH_LANES, to + v * GH_LANES, own + v * GH_LANES, plane, columns, vectors);
    for (; v < count; v++) {
      const int64_t c = gh_first_channel(s, v);
      gh_depthwise_row(s, x, g, at + c, to + c, own + v * GH_LANES, plane, columns, 1);
    }
  }
}

/* A vector of the kernels' gradients: the sums of all parts in order, each channel's stored once. */
GH_FN void gh_depthwise_results(const gh_depthwise *s, const float *work, void *dw, int64_t v, int64_t parts,
                                int64_t weights, int64_t plane) {
  const int64_t kernel = s->rows * s->columns, first = gh_first_channel(s, v);
  for (int64_t k = 0; k < kernel; k++) {
    gh_vector total = {0};
    for (int64_t p = 0; p < parts; p++) total += *(const gh_vector *)(work + p * weights + k * plane + v * GH_LANES);
    for (int64_t c = v * GH_LANES - first; c < GH_LANES; c++)
      gh_store_one(dw, (first + c) * kernel + k, total[c], s->brief);
  }
}

/* Weights (channels, rows, columns) as (rows, columns, plane) floats. */
GH_FN void gh_depthwise_weights(const gh_depthwise *s, const void *weights, float *w, int64_t plane) {
  const int64_t kernel = s->rows * s->columns;
  for (int64_t i = 0; i < plane; i++) {
    const int64_t c = gh_first_channel(s, i / GH_LANES) + i % GH_LANES;
    for (int64_t k = 0; k < kernel; k++) w[k * plane + i] = gh_load_one(weights, c * kernel + k, s->brief);
  }
}

/* The gradient of `vectors` vectors of one element, at (row, column): `w` is (rows, columns, plane). */
GH_FN void gh_depthwise_element(const gh_depthwise *s, const void *g, const float *w, void *dx, int64_t image,
                                int64_t row, int64_t column, int64_t c, int64_t plane, const int vectors) {
  gh_vector total[vectors];
  GH_UNROLL
  for (int v = 0; v < vectors; v++) total[v] = (gh_vector){0};
  for (int64_t r = 0; r < s->rows; r++) {
    const int64_t down = row + s->top - r * s->row_gap, j = down / s->row_step;
    if (down < 0 || down % s->row_step || j >= s->out_height) continue;
    for (int64_t k = 0; k < s->columns; k++) {
      const int64_t along = column + s->left - k * s->column_gap, i = along / s->column_step;
      if (along < 0 || along % s->column_step || i >= s->out_width) continue;
      const int64_t from = ((image * s->out_height + j) * s->out_width + i) * s->channels + c;
      const float *const kernel = w + (r * s->columns + k) * plane;
      GH_UNROLL
      for (int v = 0; v < vectors; v++)
        total[v] += gh_load(g, from + v * GH_LANES, GH_LANES, s->brief) * *(const gh_vector *)(kernel + v * GH_LANES);
    }
  }
  const int64_t to = ((image * s->height + row) * s->width + column) * s->channels + c;
  GH_UNROLL
  for (int v = 0; v < vectors; v++) gh_store(dx, to + v * GH_LANES, total[v], GH_LANES, s->brief);
}

/* The gradients of all channels of one element. */
GH_FN void gh_depthwise_place(const gh_depthwise *s, const void *g, const float *w, void *dx, int64_t image,
                              int64_t row, int64_t column, int64_t plane) {
  const int64_t count = plane / GH_LANES, whole = s->channels / GH_LANES;
  int64_t v = 0;
  for (; v + 4 <= whole; v += 4)
    gh_depthwise_element(s, g, w + v * GH_LANES, dx, image, row, column, v * GH_LANES, plane, 4);
  for (; v < count; v++)
    gh_depthwise_element(s, g, w + v * GH_LANES, dx, image, row, column, gh_first_channel(s, v), plane, 1);
}
