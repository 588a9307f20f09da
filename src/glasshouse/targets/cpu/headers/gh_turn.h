/* Tiles of float32 whose rows become columns. Each line of the cache is read and written once, whatever
   the distance of the rows is. */
enum {
  GH_TILE_EDGE = 16 /* elements of a row: a line of the cache */
};

/* The row of `first` and `second`, which lie `step` rows apart, that takes every other `step` lanes from
   the other one. */
GH_FN gh_vector gh_mixed(gh_vector first, gh_vector second, const int step, const int later) {
  gh_bits lanes = {0};
  GH_UNROLL
  for (int j = 0; j < GH_LANES; j++) lanes[j] = (j & step ? GH_LANES + j - step : j) + later * step;
  return __builtin_shuffle(first, second, lanes);
}

/* A square as wide as a vector, by exchanging ever smaller squares within it. */
GH_FN void gh_turn_square(const float *from, int64_t from_row, float *to, int64_t to_row) {
  gh_vector row[GH_LANES];
  GH_UNROLL
  for (int i = 0; i < GH_LANES; i++) row[i] = *(const gh_vector *)(from + i * from_row);
  GH_UNROLL
  for (int step = GH_LANES / 2; step; step /= 2)
    GH_UNROLL
    for (int i = 0; i < GH_LANES; i++) {
      if (i & step) continue;
      const gh_vector first = row[i], second = row[i + step];
      row[i] = gh_mixed(first, second, step, 0);
      row[i + step] = gh_mixed(first, second, step, 1);
    }
  GH_UNROLL
  for (int i = 0; i < GH_LANES; i++) *(gh_vector *)(to + i * to_row) = row[i];
}

/* The tile at `from`, whose rows lie `from_row` elements apart, as columns; zeros without one. */
GH_FN void gh_turn_tile(const float *from, int64_t from_row, float *to, int64_t to_row) {
  for (int i = 0; i < GH_TILE_EDGE; i += GH_LANES)
    for (int j = 0; j < GH_TILE_EDGE; j += GH_LANES)
      if (from) gh_turn_square(from + i * from_row + j, from_row, to + j * to_row + i, to_row);
      else
        for (int k = 0; k < GH_LANES; k++) *(gh_vector *)(to + (j + k) * to_row + i) = (gh_vector){0};
}
