/* Convolutions of 3 x 3 kernels by Winograd's minimal filtering F(4 x 4, 3 x 3): 36 multiplications
   give 4 x 4 results of a channel, where the definition takes 144.

   An image is cut into tiles of 4 x 4 results, which need 6 x 6 elements; tiles, elements and kernels
   are transformed, and for each of the 36 places a product of matrices, tiles by channels, is all
   that remains. Source: Lavin & Gray 2016, arXiv:1509.09308, at the points 0,
   +-5/8, +-3/2 and infinity, whose errors are about a third of those of 0, +-1, +-2 (docs/inside/numerics.md).

   Data is channels last. A kernel (targets/cpu/kernels/winograd.py) keeps its sizes in a constant `gh_winograd`,
   which is folded into the functions here, all of them inlined; transformed data lies in rows of
   channels, one after the other for the tiles of a block, one such plane for each of the 36 places. */
#ifdef __AVX512F__
enum { GH_MOST_ROWS = 14 }; /* a tile of results in registers: rows by two vectors */
#else
enum { GH_MOST_ROWS = 6 };
#endif
enum { GH_PANEL = 2 * GH_LANES, GH_TERMS = 16 };
typedef int32_t gh_mask __attribute__((vector_size(4 * GH_LANES)));

/* (images, height, width, channels) -> (images, out_height, out_width, out_channels); elements
   before the first: `top`, `left`. `rows` of tiles are multiplied at once; planes of transformed elements
   have rows of `in_row` floats and `in_plane` in all, those of results `out_row` and `out_plane`. */
typedef struct {
  int64_t height, width, channels, out_height, out_width, out_channels, top, left, rows;
  int64_t in_row, in_plane, out_row, out_plane;
  int64_t channel_step, out_channel_step, flip; /* of the weights; whether turned by half a circle */
  int brief; /* data, weights and results are bfloat16, not float32; all between is float32 */
} gh_winograd;

/* `call` for the vectors of `size` channels: from `c`, `count` of them, which is a constant. */
#define GH_CHANNELS(size, call)                                                             \
  for (int64_t c = 0; c < (size); c += GH_LANES) {                                          \
    if (c + GH_LANES <= (size)) { const int count = GH_LANES; call; }                       \
    else { const int count = (int)((size) % GH_LANES); call; }                              \
  }

/* ---- transforms along one axis: `a` and `b` are the steps between elements ------------------

   P and Q are the points, P2 and Q2 their squares, all of them exact; LP and LQ are the leading
   factors of the polynomials that are 1 at one point and 0 at the others. */
#define GH_P 0.625f
#define GH_Q 1.5f
#define GH_P2 (GH_P * GH_P)
#define GH_Q2 (GH_Q * GH_Q)
#define GH_LP (1.0f / (2.0f * GH_P2 * (GH_P2 - GH_Q2)))
#define GH_LQ (1.0f / (2.0f * GH_Q2 * (GH_Q2 - GH_P2)))

GH_FN void gh_in_1d(gh_vector *to, const int a, const gh_vector *d, const int b) {
  const gh_vector d1 = d[b], d2 = d[2 * b], d3 = d[3 * b], d4 = d[4 * b];
  const gh_vector even = d4 - GH_Q2 * d2, odd = d3 - GH_Q2 * d1;
  const gh_vector even2 = d4 - GH_P2 * d2, odd2 = d3 - GH_P2 * d1;
  to[0] = (GH_P2 * GH_Q2) * d[0] - (GH_P2 + GH_Q2) * d2 + d4;
  to[a] = even + GH_P * odd;
  to[2 * a] = even - GH_P * odd;
  to[3 * a] = even2 + GH_Q * odd2;
  to[4 * a] = even2 - GH_Q * odd2;
  to[5 * a] = (GH_P2 * GH_Q2) * d1 - (GH_P2 + GH_Q2) * d3 + d[5 * b];
}

GH_FN void gh_out_1d(gh_vector *to, const int a, const gh_vector *m, const int b) {
  const gh_vector sum = m[b] + m[2 * b], less = m[b] - m[2 * b];
  const gh_vector sum2 = m[3 * b] + m[4 * b], less2 = m[3 * b] - m[4 * b];
  to[0] = m[0] + sum + sum2;
  to[a] = GH_P * less + GH_Q * less2;
  to[2 * a] = GH_P2 * sum + GH_Q2 * sum2;
  to[3 * a] = (GH_P2 * GH_P) * less + (GH_Q2 * GH_Q) * less2 + m[5 * b];
}

/* The transposed of gh_out_1d. */
GH_FN void gh_grad_1d(gh_vector *to, const int a, const gh_vector *g, const int b) {
  const gh_vector g1 = g[b], g2 = g[2 * b], g3 = g[3 * b];
  const gh_vector even = g[0] + GH_P2 * g2, odd = g1 + GH_P2 * g3;
  const gh_vector even2 = g[0] + GH_Q2 * g2, odd2 = g1 + GH_Q2 * g3;
  to[0] = g[0];
  to[a] = even + GH_P * odd;
  to[2 * a] = even - GH_P * odd;
  to[3 * a] = even2 + GH_Q * odd2;
  to[4 * a] = even2 - GH_Q * odd2;
  to[5 * a] = g3;
}

GH_FN void gh_weight_1d(gh_vector *to, const int a, const gh_vector *w, const int b) {
  const gh_vector even = GH_LP * w[0] + (GH_LP * GH_P2) * w[2 * b], odd = (GH_LP * GH_P) * w[b];
  const gh_vector even2 = GH_LQ * w[0] + (GH_LQ * GH_Q2) * w[2 * b], odd2 = (GH_LQ * GH_Q) * w[b];
  to[0] = w[0] * (1.0f / (GH_P2 * GH_Q2));
  to[a] = even + odd;
  to[2 * a] = even - odd;
  to[3 * a] = even2 + odd2;
  to[4 * a] = even2 - odd2;
  to[5 * a] = w[2 * b];
}

/* The transposed of gh_weight_1d. */
GH_FN void gh_weight_grad_1d(gh_vector *to, const int a, const gh_vector *m, const int b) {
  const gh_vector sum = GH_LP * (m[b] + m[2 * b]), less = (GH_LP * GH_P) * (m[b] - m[2 * b]);
  const gh_vector sum2 = GH_LQ * (m[3 * b] + m[4 * b]), less2 = (GH_LQ * GH_Q) * (m[3 * b] - m[4 * b]);
  to[0] = m[0] * (1.0f / (GH_P2 * GH_Q2)) + sum + sum2;
  to[a] = less + less2;
  to[2 * a] = GH_P2 * sum + GH_Q2 * sum2 + m[5 * b];
}

/* ---- transforms of tiles ------------------------------------------------------------------ */

/* Where the `size` x `size` elements of tile `t` lie in (images, height, width, channels), the first
   of them `top` and `left` of the tile; `zero` stands for those outside. */
GH_FN void gh_places(const gh_winograd *s, const char **at, const char *from, const char *zero,
                     int64_t t, const int size, int64_t height, int64_t width, int64_t channels,
                     int64_t top, int64_t left) {
  const int64_t down = (s->out_height + 3) / 4, along = (s->out_width + 3) / 4;
  const int64_t image = t / (down * along), y = t / along % down * 4 - top, x = t % along * 4 - left;
  const int64_t step = channels * (s->brief ? 2 : 4);
  for (int i = 0; i < size; i++)
    for (int j = 0; j < size; j++) {
      const int inside = y + i >= 0 && y + i < height && x + j >= 0 && x + j < width;
      at[size * i + j] = inside ? from + ((image * height + y + i) * width + x + j) * step : zero;
    }
}

/* Both axes of a tile of `n` x `n` elements, as far as `m` x `m`; the next tile to the right is
   fetched meanwhile, `ahead` floats on. */
#define GH_TRANSFORM(name, n, m, along_axis)                                                \
  GH_FN void name(float *to, int64_t plane, const char *const *at, int64_t ahead, int64_t c, \
                  const int count, const int brief) {                                       \
    gh_vector d[(n) * (n)], half[(m) * (n)], r[m];                                          \
    GH_UNROLL for (int j = 0; j < (n); j++) {                                               \
      GH_UNROLL for (int i = 0; i < (n); i++) {                                             \
        d[(n) * i + j] = gh_load(at[(n) * i + j], c, count, brief);                         \
        if (j >= (n) - 4) __builtin_prefetch(at[(n) * i + j] + (ahead + c) * (brief ? 2 : 4)); \
      }                                                                                     \
      along_axis(half + j, n, d + j, n);                                                    \
    }                                                                                       \
    GH_UNROLL for (int i = 0; i < (m); i++) {                                               \
      along_axis(r, 1, half + (n) * i, 1);                                                  \
      GH_UNROLL for (int j = 0; j < (m); j++)                                               \
        gh_put(to + ((m) * i + j) * plane + c, r[j], GH_LANES);                             \
    }                                                                                       \
  }
GH_TRANSFORM(gh_in_2d, 6, 6, gh_in_1d)
GH_TRANSFORM(gh_grad_2d, 4, 6, gh_grad_1d)

/* The 6 x 6 elements of tile `t`, transformed. */
GH_FN void gh_tile_in(const gh_winograd *s, const void *x, const void *zero, float *to, int64_t t) {
  const char *at[36];
  gh_places(s, at, x, zero, t, 6, s->height, s->width, s->channels, s->top, s->left);
  GH_CHANNELS(s->channels, gh_in_2d(to, s->in_plane, at, 4 * s->channels, c, count, s->brief))
}

/* The 4 x 4 elements of tile `t` of a gradient of the results, transformed. */
GH_FN void gh_tile_grad(const gh_winograd *s, const void *g, const void *zero, float *to, int64_t t) {
  const char *at[16];
  gh_places(s, at, g, zero, t, 4, s->out_height, s->out_width, s->out_channels, 0, 0);
  GH_CHANNELS(s->out_channels,
              gh_grad_2d(to, s->out_plane, at, 4 * s->out_channels, c, count, s->brief))
}

/* Results of a tile from its products, + bias if there is one, perhaps relu. */
GH_FN void gh_out_2d(const gh_winograd *s, const float *m, const void *bias, void *y, int64_t first_c,
                     int64_t from, int64_t down, int64_t along, const int relu, int64_t c,
                     const int count) {
  gh_vector d[36], half[24], r[4], first = {0};
  if (bias) first = gh_load(bias, first_c + c, count, s->brief);
  GH_UNROLL for (int j = 0; j < 6; j++) {
    GH_UNROLL for (int i = 0; i < 6; i++)
      d[6 * i + j] = gh_get(m + (6 * i + j) * s->out_plane + c, GH_LANES);
    gh_out_1d(half + j, 6, d + j, 6);
  }
  GH_UNROLL for (int i = 0; i < 4; i++) {
    gh_out_1d(r, 1, half + 6 * i, 1);
    GH_UNROLL for (int j = 0; j < 4; j++) {
      r[j] += first;
      if (relu) r[j] = (gh_vector)((gh_mask)r[j] & ~(r[j] <= 0.0f)); /* a NaN stays */
      if (i < down && j < along)
        gh_store(y, from + (i * s->out_width + j) * s->out_channels + c, r[j], count, s->brief);
    }
  }
}

/* Results of tile `t`: the channels of one panel, or all of them where `panel` is -1. */
GH_FN void gh_tile_out(const gh_winograd *s, const float *m, const void *bias, void *y, int64_t t,
                       const int relu, int64_t panel) {
  const int64_t down = (s->out_height + 3) / 4, along = (s->out_width + 3) / 4;
  const int64_t image = t / (down * along), i = t / along % down * 4, j = t % along * 4;
  const int64_t first = panel < 0 ? 0 : panel * GH_PANEL, left = s->out_channels - first;
  const int64_t size = panel < 0 || left < GH_PANEL ? left : GH_PANEL;
  const int64_t from = ((image * s->out_height + i) * s->out_width + j) * s->out_channels + first;
  GH_CHANNELS(size, gh_out_2d(s, m, bias, y, first, from, s->out_height - i, s->out_width - j, relu,
                              c, count))
}

/* Kernels from channel `from` to `count` output channels from `c`; places are `step` floats apart. */
GH_FN void gh_weights_2d(const gh_winograd *s, const void *w, float *to, int64_t from, int64_t c,
                         int64_t step, const int count) {
  gh_vector g[9] = {0}, half[18], r[6];
  const int64_t first = from * s->channel_step + c * s->out_channel_step;
  for (int q = 0; q < 9; q++)
    GH_UNROLL for (int i = 0; i < count; i++)
      g[q][i] = gh_load_one(w, first + i * s->out_channel_step + (s->flip ? 8 - q : q), s->brief);
  GH_UNROLL for (int j = 0; j < 3; j++) gh_weight_1d(half + j, 3, g + j, 3);
  GH_UNROLL for (int i = 0; i < 6; i++) {
    gh_weight_1d(r, 1, half + 3 * i, 1);
    GH_UNROLL for (int j = 0; j < 6; j++) gh_put(to + (6 * i + j) * step, r[j], GH_LANES);
  }
}

/* Kernels from channel `from` to one panel of output channels. */
GH_FN void gh_weights(const gh_winograd *s, const void *w, float *to, int64_t from, int64_t panel,
                      int64_t step) {
  const int64_t all = s->out_channels, end = (panel + 1) * GH_PANEL < all ? (panel + 1) * GH_PANEL : all;
  for (int64_t c = panel * GH_PANEL; c < end; c += GH_LANES)
    if (c + GH_LANES <= all) gh_weights_2d(s, w, to + c % GH_PANEL, from, c, step, GH_LANES);
    else gh_weights_2d(s, w, to + c % GH_PANEL, from, c, step, (int)(all % GH_LANES));
}

/* The gradient of the kernels of `count` channels from `c`, from products in planes. */
GH_FN void gh_weight_grad_2d(const gh_winograd *s, const float *m, int64_t plane, void *to,
                             int64_t first, int64_t c, const int count) {
  gh_vector d[36], half[18], r[9];
  GH_UNROLL for (int j = 0; j < 6; j++) {
    GH_UNROLL for (int i = 0; i < 6; i++) d[6 * i + j] = gh_get(m + (6 * i + j) * plane + c, GH_LANES);
    gh_weight_grad_1d(half + j, 6, d + j, 6);
  }
  GH_UNROLL for (int i = 0; i < 3; i++) gh_weight_grad_1d(r + 3 * i, 1, half + 6 * i, 1);
  for (int i = 0; i < 9; i++)
    GH_UNROLL for (int lane = 0; lane < count; lane++)
      gh_store_one(to, (first + c + lane) * 9 + i, r[i][lane], s->brief);
}

/* The gradient of `size` kernels, from the `first` on. */
GH_FN void gh_weight_grad(const gh_winograd *s, const float *m, int64_t plane, void *to, int64_t first,
                          int64_t size) {
  GH_CHANNELS(size, gh_weight_grad_2d(s, m, plane, to, first, c, count))
}

/* ---- products ------------------------------------------------------------------------------ */

/* rows x 2 vectors of a product in registers: c = a b, or c += a b. Element (m, k) of a lies at
   a[m * a_row + k * a_column], row k of b at b + k * b_row. A sum's error grows with its length, so
   GH_TERMS products are added up at a time, and then these sums. */
GH_FN void gh_product(const float *a, int64_t a_row, int64_t a_column, const float *b, int64_t b_row,
                      float *c, int64_t c_row, int64_t depth, const int rows, int add) {
  for (int64_t first = 0; first < depth; first += GH_TERMS) {
    const int64_t end = first + GH_TERMS < depth ? first + GH_TERMS : depth;
    gh_vector sum[GH_MOST_ROWS][2] = {0};
    for (int64_t k = first; k < end; k++) {
      const gh_vector *right = (const gh_vector *)(b + k * b_row), b0 = right[0], b1 = right[1];
      GH_UNROLL for (int i = 0; i < rows; i++) {
        sum[i][0] += a[i * a_row + k * a_column] * b0;
        sum[i][1] += a[i * a_row + k * a_column] * b1;
      }
    }
    GH_UNROLL for (int i = 0; i < rows; i++)
      GH_UNROLL for (int j = 0; j < 2; j++) {
        gh_vector *to = (gh_vector *)(c + i * c_row) + j;
        if (add || first) sum[i][j] += *to;
        *to = sum[i][j];
      }
  }
}

/* One place: transformed elements `v` of `count` tiles by one panel `u` of transformed weights. The
   last tiles and the last channels of a panel may be any numbers: nobody reads their results. */
GH_FN void gh_multiply(const gh_winograd *s, const float *v, const float *u, float *m, int64_t count,
                       int64_t depth, int add) {
  const int rows = s->rows < GH_MOST_ROWS ? (int)s->rows : GH_MOST_ROWS;
  for (int64_t t = 0; t < count; t += rows)
    gh_product(v + t * s->in_row, s->in_row, 1, u, GH_PANEL, m + t * s->out_row, s->out_row, depth,
               rows, add);
}

/* One place of the gradient of the weights: transformed gradients `q` of `out_channels` and `count`
   tiles, turned, by one panel of transformed elements `v`. */
GH_FN void gh_multiply_grad(const gh_winograd *s, const float *q, const float *v, float *m, int64_t row,
                            int64_t out_channels, int64_t count, int add) {
  const int rows = GH_LANES / 2;
  for (int64_t k = 0; k < out_channels; k += rows)
    gh_product(q + k, 1, s->out_row, v, s->in_row, m + k * row, row, count, rows, add);
}
