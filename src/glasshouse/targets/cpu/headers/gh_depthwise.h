/* Gradients of depthwise convolutions, where each channel has its own kernel. Data is channels
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

enum {
  GH_SUMS = 24 /* vectors in registers that are summed at once, at most */
};

GH_FN int64_t gh_first_channel(const gh_depthwise *s, int64_t vector) {
  const int64_t last = s->channels - GH_LANES, first = vector * GH_LANES;
  return first < last ? first : last;
}

/* One row of the kernels' gradients from one row of elements `x` and one of gradients `g`, added to
   `sum`: for each column of the kernels `plane` floats, of which these are `vectors` vectors. */
GH_FN void gh_depthwise_row(const gh_depthwise *s, const void *x, const void *g, int64_t at, int64_t to,
                            float *sum, int64_t plane, const int columns, const int vectors) {
  gh_vector total[GH_SUMS];
  GH_UNROLL
  for (int j = 0; j < columns * vectors; j++) total[j] = (gh_vector){0};
  for (int64_t i = 0; i < s->out_width; i++) {
    const int64_t begin = i * s->column_step - s->left;
    const int inside = begin >= 0 && begin + (columns - 1) * s->column_gap < s->width;
    gh_vector slope[GH_SUMS];
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
    for (; vectors > 2 && v + 2 <= whole; v += 2)
      gh_depthwise_row(s, x, g, at + v * GH_LANES, to + v * GH_LANES, own + v * GH_LANES, plane, columns, 2);
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

/* A vector of weights (channels, rows, columns) as (rows, columns, plane) floats, and of the bias after them. */
GH_FN void gh_depthwise_weights(const gh_depthwise *s, const void *weights, const void *bias, float *w, int64_t v,
                                int64_t plane) {
  const int64_t kernel = s->rows * s->columns, first = gh_first_channel(s, v);
  for (int64_t i = 0; i < GH_LANES; i++) {
    float *const to = w + v * GH_LANES + i;
    for (int64_t k = 0; k < kernel; k++) to[k * plane] = gh_load_one(weights, (first + i) * kernel + k, s->brief);
    to[kernel * plane] = bias ? gh_load_one(bias, first + i, s->brief) : 0;
  }
}

/* From a tap of a kernel that a result uses to the next: elements of data, and weights along both axes;
   from any tap to the next: weights; the width of the data; which rows of it the next results read first. */
typedef struct {
  int64_t row, row_weight, column_weight, weight, width, ahead, fresh;
} gh_taps;

/* Results along a row that use the same columns of a kernel: `places` of them, `spacing` apart from the
   first on. That one begins at element `from` with tap `tap`, and uses `columns` taps `element` elements
   apart; the next begins `apart` elements further. `results` are computed at once. */
typedef struct {
  int first, spacing, places, from, tap, columns, element, apart, results;
} gh_phase;

/* The elements that a tile of the next row of results reads first, about, are fetched. */
GH_FN void gh_depthwise_fetch(const gh_taps *t, const gh_phase p, const char *x, int64_t begin, int64_t channels,
                              int64_t size, const int vectors) {
  for (int64_t r = 0; r < t->fresh; r++)
    GH_UNROLL
    for (int i = 0; i < p.results * p.apart; i++)
      GH_UNROLL
      for (int v = 0; v < vectors; v++)
        __builtin_prefetch(x + (((t->ahead + r) * t->width + begin + i) * channels + v * GH_LANES) * size, 0, 2);
}

/* Results from `place` on of all rows of a kernel, in registers: an element is loaded once for all results
   that read it. */
GH_FN void gh_depthwise_tile(const gh_taps *t, const gh_phase p, const void *x, const float *w, const float *bias,
                             void *y, int64_t place, int64_t rows, int64_t channels, const int brief,
                             const int vectors) {
  const int64_t begin = p.from + place * p.apart, to = (p.first + place * p.spacing) * channels;
  const int reach = (p.columns - 1) * p.element;
  const int least = reach < 0 ? reach : 0, most = (p.results - 1) * p.apart + (reach > 0 ? reach : 0);
  gh_vector total[GH_SUMS];
  GH_UNROLL
  for (int i = 0; i < p.results; i++)
    GH_UNROLL
    for (int v = 0; v < vectors; v++) total[i * vectors + v] = *(const gh_vector *)(bias + v * GH_LANES);
  if (p.first == 0) gh_depthwise_fetch(t, p, x, begin, channels, brief ? 2 : 4, vectors);
  for (int64_t r = 0; r < rows; r++) {
    const int64_t at = r * t->row;
    gh_vector weight[GH_SUMS];
    GH_UNROLL
    for (int k = 0; k < p.columns; k++)
      GH_UNROLL
      for (int v = 0; v < vectors; v++)
        weight[k * vectors + v] = *(const gh_vector *)(w + r * t->row_weight + k * t->column_weight + v * GH_LANES);
    GH_UNROLL
    for (int e = least; e <= most; e++) {
      const int64_t column = begin + e;
      if (column < 0 || column >= t->width) continue;
      gh_vector element[GH_SUMS];
      GH_UNROLL
      for (int v = 0; v < vectors; v++) element[v] = gh_load(x, at + column * channels + v * GH_LANES, GH_LANES, brief);
      GH_UNROLL
      for (int i = 0; i < p.results; i++) {
        const int far = e - i * p.apart, k = far / p.element;
        if (far % p.element || k < 0 || k >= p.columns) continue;
        GH_UNROLL
        for (int v = 0; v < vectors; v++) total[i * vectors + v] += element[v] * weight[k * vectors + v];
      }
    }
  }
  GH_UNROLL
  for (int i = 0; i < p.results; i++)
    GH_UNROLL
    for (int v = 0; v < vectors; v++)
      gh_store(y, to + i * p.spacing * channels + v * GH_LANES, total[i * vectors + v], GH_LANES, brief);
}

/* A row of results of all channels, tile by tile: the last one ends with the last result. */
GH_FN void gh_depthwise_line(const gh_taps *t, const gh_phase p, const void *x, const float *w, const float *bias,
                             void *y, int64_t rows, int64_t channels, const int brief, const int vectors) {
  const int64_t whole = channels / GH_LANES, size = brief ? 2 : 4;
  w += p.tap * t->weight;
#define GH_TILE(c, v, vectors) \
  gh_depthwise_tile(t, p, (const char *)x + (c) * size, w + (v) * GH_LANES, bias + (v) * GH_LANES, \
                    (char *)y + (c) * size, place, rows, channels, brief, vectors)
  for (int64_t i = 0; i < p.places; i += p.results) {
    const int64_t place = i + p.results < p.places ? i : p.places - p.results;
    int64_t v = 0;
    for (; v + vectors <= whole; v += vectors) GH_TILE(v * GH_LANES, v, vectors);
    for (; v < whole; v++) GH_TILE(v * GH_LANES, v, 1);
    if (whole * GH_LANES < channels) GH_TILE(channels - GH_LANES, whole, 1);
  }
#undef GH_TILE
}
