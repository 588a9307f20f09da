/* Products of matrices of float64: tiles of the result in registers, or rows by one vector. */
#ifdef __AVX512F__
enum { GH_DOUBLES = 8 };
#elif defined(__AVX__)
enum { GH_DOUBLES = 4 };
#else
enum { GH_DOUBLES = 2 };
#endif
enum { GH_TILE_ROWS = GH_DOUBLES == 8 ? 8 : 4, GH_TILE_VECTORS = GH_DOUBLES == 2 ? 2 : 3 };

typedef double gh_doubles __attribute__((vector_size(8 * GH_DOUBLES), aligned(8), may_alias));
typedef double gh_four __attribute__((vector_size(32), aligned(8), may_alias));
typedef int64_t gh_picked __attribute__((vector_size(32)));

/* A tile of `rows` rows and `vectors` vectors of columns: each element is a sum in the order of k. */
GH_FN void gh_tile(const double *a, int64_t over, int64_t along, const double *b, int64_t below,
                   int64_t depth, double *out, int64_t columns, const int rows, const int vectors) {
  gh_doubles sum[8][3] = {0};
  for (int64_t k = 0; k < depth; k++, a += along, b += below) {
    gh_doubles right[3];
    GH_UNROLL for (int v = 0; v < vectors; v++) right[v] = *(const gh_doubles *)(b + v * GH_DOUBLES);
    GH_UNROLL for (int i = 0; i < rows; i++)
      GH_UNROLL for (int v = 0; v < vectors; v++) sum[i][v] += a[i * over] * right[v];
  }
  GH_UNROLL for (int i = 0; i < rows; i++)
    GH_UNROLL for (int v = 0; v < vectors; v++)
      *(gh_doubles *)(out + i * columns + v * GH_DOUBLES) = sum[i][v];
}

/* The columns from `first` on of some rows. Where they fill no whole vectors, the last tile begins
   earlier, and computes some elements again, in the same order. */
GH_FN void gh_tiles_of_rows(const double *a, int64_t over, int64_t along, const double *b, int64_t below,
                            int64_t depth, double *out, int64_t columns, int64_t first, const int rows) {
  int64_t j = first;
#define GH_TILES(vectors)                                                                              \
  for (; j + vectors * GH_DOUBLES <= columns; j += vectors * GH_DOUBLES)                               \
    gh_tile(a, over, along, b + j, below, depth, out + j, columns, rows, vectors);
  GH_TILES(GH_TILE_VECTORS)
  GH_TILES(2)
  GH_TILES(1)
#undef GH_TILES
  if (j < columns) {
    j = columns - GH_DOUBLES;
    gh_tile(a, over, along, b + j, below, depth, out + j, columns, rows, 1);
  }
}

/* The rows from `begin` to `end`, at most GH_TILE_ROWS; of a symmetric product from the diagonal on. */
GH_FN void gh_double_rows(const double *a, int64_t over, int64_t along, const double *b, int64_t below,
                          int64_t depth, double *out, int64_t columns, int64_t begin, int64_t end,
                          const int is_symmetric) {
  const int64_t first = is_symmetric ? begin : 0;
  a += begin * over, out += begin * columns;
  if (end - begin == GH_TILE_ROWS) {
    gh_tiles_of_rows(a, over, along, b, below, depth, out, columns, first, GH_TILE_ROWS);
    return;
  }
  for (; begin < end; begin++, a += over, out += columns)
    gh_tiles_of_rows(a, over, along, b, below, depth, out, columns, first, 1);
}

/* The elements below the diagonal. */
GH_FN void gh_mirror(double *out, int64_t size) {
  for (int64_t i = 1; i < size; i++)
    for (int64_t j = 0; j < i; j++) out[i * size + j] = out[j * size + i];
}

/* Elements of two vectors, by their places in both. */
#ifdef __clang__
#define GH_PICK __builtin_shufflevector
#else
#define GH_PICK(x, y, ...) __builtin_shuffle(x, y, (gh_picked){__VA_ARGS__})
#endif

/* Rows, at most four, by one vector. Each sum is in an order of its own, whatever the rows beside it. */
GH_FN void gh_dots(const double *a, int64_t over, const double *b, int64_t depth, double *out, const int rows) {
  gh_four sum[4] = {0}, more[4] = {0}, rest = {0};
  int64_t k = 0;
#define GH_ADD(to, at)                                                                                 \
  GH_UNROLL for (int i = 0; i < rows; i++)                                                             \
    to[i] += *(const gh_four *)(a + i * over + at) * *(const gh_four *)(b + at);
  for (; k + 8 <= depth; k += 8) {
    GH_ADD(sum, k)
    GH_ADD(more, k + 4)
  }
  if (k + 4 <= depth) {
    GH_ADD(sum, k)
    k += 4;
  }
#undef GH_ADD
  for (; k < depth; k++)
    GH_UNROLL for (int i = 0; i < rows; i++) rest[i] += a[i * over + k] * b[k];
  GH_UNROLL for (int i = 0; i < rows; i++) sum[i] += more[i];
  const gh_four low = GH_PICK(sum[0], sum[1], 0, 4, 2, 6) + GH_PICK(sum[0], sum[1], 1, 5, 3, 7);
  const gh_four high = GH_PICK(sum[2], sum[3], 0, 4, 2, 6) + GH_PICK(sum[2], sum[3], 1, 5, 3, 7);
  rest += GH_PICK(low, high, 0, 1, 4, 5) + GH_PICK(low, high, 2, 3, 6, 7);
  GH_UNROLL for (int i = 0; i < rows; i++) out[i] = rest[i];
}
