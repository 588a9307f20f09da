/* Stable sorting of keys with the positions that they came from.
 *
 * A key is an unsigned number in the order of the elements: NaN has the largest, and both zeros
 * have the same. Short rows are sorted by insertion, others by their digits, the lowest first, of
 * which those are passed over that all keys have in common. */
#ifndef GH_SORT_H
#define GH_SORT_H

#define GH_SHORT_ROW 24
#define GH_KEYS(bits, real, name)                                                             \
  GH_FN uint##bits##_t gh_key_##name(real x) {                                                \
    uint##bits##_t word;                                                                      \
    const real plain = x == 0 ? 0 : x;                                                        \
    memcpy(&word, &plain, sizeof word);                                                       \
    word ^= word >> (bits - 1) ? UINT##bits##_MAX : (uint##bits##_t)1 << (bits - 1);          \
    return x != x ? UINT##bits##_MAX : word;                                                  \
  }                                                                                           \
  /* Sorts n keys and their positions; `more` are as many of both to work with. Returns where   \
   * the positions are then. */                                                               \
  static __attribute__((unused)) uint32_t *gh_sort_##bits(uint##bits##_t *key, uint32_t *at,  \
      uint##bits##_t *more_keys, uint32_t *more, int64_t n) {                                 \
    if (n <= GH_SHORT_ROW) {                                                                  \
      for (int64_t i = 1; i < n; i++) {                                                       \
        const uint##bits##_t k = key[i];                                                      \
        const uint32_t from = at[i];                                                          \
        int64_t j = i;                                                                        \
        for (; j > 0 && key[j - 1] > k; j--) key[j] = key[j - 1], at[j] = at[j - 1];          \
        key[j] = k, at[j] = from;                                                             \
      }                                                                                       \
      return at;                                                                              \
    }                                                                                         \
    int64_t count[bits / 8][256];                                                             \
    memset(count, 0, sizeof count);                                                           \
    for (int64_t i = 0; i < n; i++)                                                           \
      for (int d = 0; d < bits / 8; d++) count[d][key[i] >> 8 * d & 255]++;                   \
    for (int d = 0; d < bits / 8; d++) {                                                      \
      int64_t *first = count[d], sum = 0;                                                     \
      if (first[key[0] >> 8 * d & 255] == n) continue;                                        \
      for (int v = 0; v < 256; v++) {                                                         \
        const int64_t own = first[v];                                                         \
        first[v] = sum, sum += own;                                                           \
      }                                                                                       \
      for (int64_t i = 0; i < n; i++) {                                                       \
        const int64_t to = first[key[i] >> 8 * d & 255]++;                                    \
        more_keys[to] = key[i], more[to] = at[i];                                             \
      }                                                                                       \
      uint##bits##_t *keys = key;                                                             \
      uint32_t *positions = at;                                                               \
      key = more_keys, at = more, more_keys = keys, more = positions;                         \
    }                                                                                         \
    return at;                                                                                \
  }
GH_KEYS(32, float, f32)
GH_KEYS(64, double, f64)

#endif
