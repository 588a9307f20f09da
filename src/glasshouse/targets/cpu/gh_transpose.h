/* Transposing: tiles of GH_LANES rows and columns in registers. */
#if defined(__AVX512F__)
enum { GH_TURNS = 4 }; /* the logarithm of GH_LANES */
#define GH_FIRST_HALVES 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define GH_LAST_HALVES 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#elif defined(__AVX__)
enum { GH_TURNS = 3 };
#define GH_FIRST_HALVES 0, 8, 1, 9, 2, 10, 3, 11
#define GH_LAST_HALVES 4, 12, 5, 13, 6, 14, 7, 15
#else
enum { GH_TURNS = 2 };
#define GH_FIRST_HALVES 0, 4, 1, 5
#define GH_LAST_HALVES 2, 6, 3, 7
#endif
enum { GH_AHEAD = 64 }; /* elements of a row that are fetched before they are read */

/* How many of `left` elements a tile has. */
GH_FN int gh_most(int64_t left) { return left < 0 ? 0 : left < GH_LANES ? (int)left : GH_LANES; }

/* A tile: to[j * over + i] = from[i * down + j], of `rows` and `columns`; `filled` elements of a row
   are written, of which those without a row are 0. Vectors half of them apart are shuffled into two
   neighbours, the elements of the one between those of the other; after GH_TURNS times of that, each
   vector is a column. */
GH_FN void gh_tile(const float *from, int64_t down, const int rows, const int columns, float *to,
                   int64_t over, const int filled) {
  gh_vector v[GH_LANES], w[GH_LANES];
  GH_UNROLL for (int i = 0; i < GH_LANES; i++) {
    v[i] = i < rows ? gh_get(from + i * down, columns) : (gh_vector){0};
    if (i < rows) __builtin_prefetch(from + i * down + GH_AHEAD);
  }
  GH_UNROLL for (int turn = 0; turn < GH_TURNS; turn++) {
    GH_UNROLL for (int i = 0; i < GH_LANES / 2; i++) {
      w[2 * i] = __builtin_shufflevector(v[i], v[i + GH_LANES / 2], GH_FIRST_HALVES);
      w[2 * i + 1] = __builtin_shufflevector(v[i], v[i + GH_LANES / 2], GH_LAST_HALVES);
    }
    GH_UNROLL for (int i = 0; i < GH_LANES; i++) v[i] = w[i];
  }
  GH_UNROLL for (int j = 0; j < GH_LANES; j++)
    if (j < columns) gh_put(to + j * over, v[j], filled);
}

/* A strip of rows, transposed, of which `filled` are written: what has no row is 0. */
GH_FN void gh_strip(const float *from, int64_t down, int64_t rows, int64_t columns, float *to,
                    int64_t over, int64_t filled) {
  for (int64_t j = 0; j < columns; j += GH_LANES)
    for (int64_t i = 0; i < filled; i += GH_LANES) {
      const int high = gh_most(rows - i), wide = gh_most(columns - j), into = gh_most(filled - i);
      const float *at = from + i * down + j;
      float *put = to + j * over + i;
      if (high == GH_LANES && wide == GH_LANES)
        gh_tile(at, down, GH_LANES, GH_LANES, put, over, GH_LANES);
      else
        gh_tile(at, down, high, wide, put, over, into);
    }
}
