/* Transposing matrices by squares in registers, with the rest element by element. */
enum { GH_AHEAD = 64 }; /* elements of a row that are fetched before they are read */

/* How many of `left` elements a square has. */
GH_FN int gh_most(int64_t left) { return left < 0 ? 0 : left < GH_LANES ? (int)left : GH_LANES; }

/* A strip of rows, transposed: to[j * over + i] = from[i * down + j]. `filled` elements of a row are
   written: what has no row is 0. */
GH_FN void gh_strip(const float *from, int64_t down, int64_t rows, int64_t columns, float *to,
                    int64_t over, int64_t filled) {
  for (int64_t j = 0; j < columns; j += GH_LANES)
    for (int64_t i = 0; i < filled; i += GH_LANES) {
      const int high = gh_most(rows - i), wide = gh_most(columns - j), into = gh_most(filled - i);
      const float *at = from + i * down + j;
      float *put = to + j * over + i;
      if (high == GH_LANES && wide == GH_LANES) {
        for (int k = 0; k < GH_LANES; k++) __builtin_prefetch(at + k * down + GH_AHEAD);
        gh_turn_square(at, down, put, over);
        continue;
      }
      for (int k = 0; k < wide; k++)
        for (int h = 0; h < into; h++) put[k * over + h] = h < high ? at[h * down + k] : 0;
    }
}
