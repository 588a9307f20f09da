/* Convolutions in REAL over three axes, and their gradients, by the definition: y[n, o, p] is the sum
   over c and k of x[n, c, p stride - low + k dilation] w[o, c, k], in groups of channels. Steps are
   those between elements: item, channel, three axes. Sixteen channels made are summed at a time, so
   weights lie in panels: all terms (c, k) of 16 channels, side by side. */
enum { GH_CHANNELS_REAL = 16 };

typedef struct {
  int64_t items, groups, made, taken; /* channels made and taken, of a group */
  int64_t size[3], count[3], kernel[3], stride[3], dilation[3], low[3];
  int64_t x[5], w[5], y[5];
} gh_conv_REAL;

GH_FN int64_t gh_kernel_REAL(const gh_conv_REAL *s) { return s->kernel[0] * s->kernel[1] * s->kernel[2]; }

/* Where an element lies that position p of the result reads along an axis, -1 where that is padding. */
GH_FN int64_t gh_read_REAL(const gh_conv_REAL *s, int axis, int64_t p, int64_t k) {
  const int64_t at = p * s->stride[axis] - s->low[axis] + k * s->dilation[axis];
  return at >= 0 && at < s->size[axis] ? at : -1;
}

/* The position of the result that reads element q by weight k, -1 where there is none. */
GH_FN int64_t gh_reader_REAL(const gh_conv_REAL *s, int axis, int64_t q, int64_t k) {
  const int64_t at = q + s->low[axis] - k * s->dilation[axis], p = at / s->stride[axis];
  return at >= 0 && at % s->stride[axis] == 0 && p < s->count[axis] ? p : -1;
}

/* Weights in panels; `turned`: panels of channels taken, for the gradient of the data. */
static void gh_weights_REAL(const gh_conv_REAL *s, const REAL *w, REAL *panels, const int turned) {
  const int64_t made = turned ? s->taken : s->made, taken = turned ? s->made : s->taken;
  const int64_t blocks = (made + GH_CHANNELS_REAL - 1) / GH_CHANNELS_REAL, terms = gh_kernel_REAL(s);
  #pragma omp parallel for collapse(2) schedule(static)
  for (int64_t g = 0; g < s->groups; g++)
    for (int64_t block = 0; block < blocks; block++) {
      REAL *to = panels + (g * blocks + block) * taken * terms * GH_CHANNELS_REAL;
      for (int64_t c = 0; c < taken; c++)
        for (int64_t k = 0; k < terms; k++)
          for (int64_t j = 0; j < GH_CHANNELS_REAL; j++, to++) {
            const int64_t one = block * GH_CHANNELS_REAL + j, o = turned ? c : one, i = turned ? one : c;
            const int64_t k2 = k % s->kernel[2], k1 = k / s->kernel[2] % s->kernel[1];
            const int64_t k0 = k / s->kernel[2] / s->kernel[1];
            *to = one >= made ? 0 : w[(g * s->made + o) * s->w[0] + i * s->w[1] + k0 * s->w[2] +
                                      k1 * s->w[3] + k2 * s->w[4]];
          }
    }
}

/* The results of a position, or the gradients of an element, in 16 channels. */
GH_FN void gh_sums_REAL(const gh_conv_REAL *s, const REAL *from, const int64_t *steps, int64_t taken,
                        const REAL *w, const int64_t *p, const int turned, REAL *sum) {
  const int64_t terms = gh_kernel_REAL(s);
  for (int64_t k0 = 0; k0 < s->kernel[0]; k0++)
    for (int64_t k1 = 0; k1 < s->kernel[1]; k1++)
      for (int64_t k2 = 0; k2 < s->kernel[2]; k2++) {
        const int64_t z = turned ? gh_reader_REAL(s, 0, p[0], k0) : gh_read_REAL(s, 0, p[0], k0);
        const int64_t y = turned ? gh_reader_REAL(s, 1, p[1], k1) : gh_read_REAL(s, 1, p[1], k1);
        const int64_t x = turned ? gh_reader_REAL(s, 2, p[2], k2) : gh_read_REAL(s, 2, p[2], k2);
        if (z < 0 || y < 0 || x < 0) continue;
        const REAL *at = from + z * steps[2] + y * steps[3] + x * steps[4];
        const REAL *row = w + ((k0 * s->kernel[1] + k1) * s->kernel[2] + k2) * GH_CHANNELS_REAL;
        for (int64_t c = 0; c < taken; c++) {
          const REAL value = at[c * steps[1]];
          for (int j = 0; j < GH_CHANNELS_REAL; j++) sum[j] += value * row[c * terms * GH_CHANNELS_REAL + j];
        }
      }
}

/* All results, or all gradients of the data where `turned`. */
static void gh_convolve_REAL(const gh_conv_REAL *s, const REAL *from, const REAL *panels, REAL *to,
                             const int turned) {
  const int64_t made = turned ? s->taken : s->made, taken = turned ? s->made : s->taken;
  const int64_t blocks = (made + GH_CHANNELS_REAL - 1) / GH_CHANNELS_REAL, terms = gh_kernel_REAL(s);
  const int64_t *in = turned ? s->y : s->x, *out = turned ? s->x : s->y, *n = turned ? s->size : s->count;
  #pragma omp parallel for collapse(3) schedule(static)
  for (int64_t item = 0; item < s->items; item++)
    for (int64_t g = 0; g < s->groups; g++)
      for (int64_t z = 0; z < n[0]; z++)
        for (int64_t block = 0; block < blocks; block++) {
          const REAL *w = panels + (g * blocks + block) * taken * terms * GH_CHANNELS_REAL;
          const int64_t first = block * GH_CHANNELS_REAL;
          for (int64_t y = 0; y < n[1]; y++)
            for (int64_t x = 0; x < n[2]; x++) {
              const int64_t p[3] = {z, y, x};
              REAL sum[GH_CHANNELS_REAL] = {0};
              gh_sums_REAL(s, from + item * in[0] + g * taken * in[1], in, taken, w, p, turned, sum);
              REAL *at = to + item * out[0] + (g * made + first) * out[1] + z * out[2] + y * out[3] + x * out[4];
              for (int64_t j = 0; j < GH_CHANNELS_REAL && first + j < made; j++) at[j * out[1]] = sum[j];
            }
        }
}

/* The gradient of the weights: for each pair of channels and each weight a sum over all positions. */
static void gh_weight_sums_REAL(const gh_conv_REAL *s, const REAL *x, const REAL *dy, REAL *dw) {
  const int64_t terms = gh_kernel_REAL(s);
  #pragma omp parallel for collapse(2) schedule(static)
  for (int64_t o = 0; o < s->groups * s->made; o++)
    for (int64_t c = 0; c < s->taken; c++)
      for (int64_t k = 0; k < terms; k++) {
        const int64_t k2 = k % s->kernel[2], k1 = k / s->kernel[2] % s->kernel[1];
        const int64_t k0 = k / s->kernel[2] / s->kernel[1], g = o / s->made;
        REAL sum[4] = {0};
        for (int64_t item = 0; item < s->items; item++)
          for (int64_t p0 = 0; p0 < s->count[0]; p0++)
            for (int64_t p1 = 0; p1 < s->count[1]; p1++) {
              const int64_t z = gh_read_REAL(s, 0, p0, k0), y = gh_read_REAL(s, 1, p1, k1);
              if (z < 0 || y < 0) continue;
              const REAL *from = x + item * s->x[0] + (g * s->taken + c) * s->x[1] + z * s->x[2] + y * s->x[3];
              const REAL *by = dy + item * s->y[0] + o * s->y[1] + p0 * s->y[2] + p1 * s->y[3];
              for (int64_t p2 = 0; p2 < s->count[2]; p2++) {
                const int64_t at = gh_read_REAL(s, 2, p2, k2);
                if (at >= 0) sum[p2 & 3] += from[at * s->x[4]] * by[p2 * s->y[4]];
              }
            }
        dw[o * s->w[0] + c * s->w[1] + k0 * s->w[2] + k1 * s->w[3] + k2 * s->w[4]] =
            (sum[0] + sum[2]) + (sum[1] + sum[3]);
      }
}
