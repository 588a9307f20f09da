/* Products of float32 by the unit for matrices of bfloat16 (Intel's AMX).

   An element x is the sum of three of bfloat16, each the nearest to what the ones before leave over:
   x = high + middle + low, without an error. Of the nine products of such parts six are computed, each
   exactly, and summed in float32; the others (middle low, low middle, low low) are together below 2**-25
   of the product. Source: Henry, Tang & Heinecke 2019, arXiv:1904.06376.

   A panel has for 32 terms of the sums after the other its six tiles (`GH_PART` says where). */
enum {
  GH_PARTS = 6 * GH_PART_SIZE, /* elements of a panel for 32 terms */
  GH_MOST_DEEP = 16            /* so many times 32 terms are in panels at a time */
};
#define GH_PART(panel, tile, part) ((panel) + (2 * (part) + (tile)) * GH_PART_SIZE)

/* ---- parts ---------------------------------------------------------------------------------- */

/* The parts of two vectors side by side: in each lane that of `first` and, in the upper half, that of
   `second`. `spoilt` becomes NaN where an element has no parts: infinity and NaN, and what rounds to
   infinity. Halves are rounded away from zero; what the first two parts leave over has at most 8 bits. */
GH_FN void gh_split(__m512 first, __m512 second, uint16_t *to, __m512 *spoilt) {
  const __m512i upper = _mm512_set1_epi32((int)0xffff0000), half = _mm512_set1_epi32(0x8000);
  GH_UNROLL
  for (int part = 0; part < 3; part++) {
    __m512i a = _mm512_castps_si512(first), b = _mm512_castps_si512(second);
    if (part < 2) {
      a = _mm512_add_epi32(a, half);
      b = _mm512_add_epi32(b, half);
      first = _mm512_sub_ps(first, _mm512_castsi512_ps(_mm512_and_epi32(a, upper)));
      second = _mm512_sub_ps(second, _mm512_castsi512_ps(_mm512_and_epi32(b, upper)));
    }
    /* Bits of b where `upper` has ones, else those of a's upper half. */
    const __m512i both = _mm512_ternarylogic_epi32(upper, b, _mm512_srli_epi32(a, 16), 0xca);
    _mm512_storeu_si512(GH_PART(to, 0, part), both);
    if (part) continue;
    *spoilt = _mm512_fmadd_ps(first, _mm512_setzero_ps(), *spoilt);
    *spoilt = _mm512_fmadd_ps(second, _mm512_setzero_ps(), *spoilt);
  }
}

/* Rows of 16 elements, of which `rows` rows and `count` in each are there; zeros for the others. */
GH_FN void gh_square(const float *from, int64_t step, int64_t rows, int64_t count, float *to) {
  const __mmask16 there = gh_there(count);
  for (int i = 0; i < GH_EDGE; i++)
    _mm512_store_ps(to + i * GH_EDGE, _mm512_maskz_loadu_ps(i < rows ? there : 0, from + i * step));
}

/* Panels in the making: of a, or of b (`of_b`), `places` rows or columns from `from` on by `terms` terms,
   in `tiles` of up to 16 places by 32 terms. A row of a tile is a place of a, or two terms of b; the terms
   that share a lane are 16 apart, of both. A tile takes GH_TURNS, of which `done` are: two squares of its
   elements in `halves`, whose rows are the tile's, and then the parts of row after row. */
enum { GH_TURNS = 2 + GH_EDGE };
typedef struct {
  float halves[2][GH_EDGE * GH_EDGE] __attribute__((aligned(64)));
  __m512 spoilt;
  const float *from, *tile_from;
  uint16_t *to, *tile_to;
  int64_t place_step, term_step, places, terms, deep, tiles, tile, tile_places, tile_terms;
  int64_t turns, chances, credit; /* see gh_make_some */
  int of_b, done;
} gh_maker;

/* Begin with panels, which are made within so many chances. */
GH_FN void gh_begin(gh_maker *m, const float *from, int64_t place_step, int64_t term_step,
                    int64_t places, int64_t terms, uint16_t *to, int of_b, int64_t chances) {
  m->spoilt = _mm512_setzero_ps();
  m->from = from;
  m->to = to;
  m->place_step = place_step;
  m->term_step = term_step;
  m->places = places;
  m->terms = terms;
  m->deep = gh_times(terms, GH_DEEP);
  m->tiles = places > 0 ? gh_times(places, GH_EDGE) * m->deep : 0;
  m->turns = m->tiles * GH_TURNS;
  m->chances = chances;
  m->tile = m->credit = 0;
  m->of_b = of_b;
  m->done = 0;
}

/* The order of tiles is one in which lines of the cache are read that lie one after the other. */
GH_FN void gh_begin_tile(gh_maker *m) {
  const int64_t n = m->tile, deep = m->deep, across = m->tiles / deep;
  const int in_rows = m->term_step == 1;
  const int64_t k = in_rows ? n % deep : n / across, t = in_rows ? n / deep : n % across;
  m->tile_from = m->from + t * GH_EDGE * m->place_step + k * GH_DEEP * m->term_step;
  m->tile_to = m->to + (t / 2 * deep + k) * GH_PARTS + t % 2 * GH_PART_SIZE;
  m->tile_places = m->places - t * GH_EDGE;
  m->tile_terms = m->terms - k * GH_DEEP;
}

/* The elements of half a tile, as they lie in memory or turned; zeros for those that are not there. */
GH_FN void gh_fill_half(gh_maker *m, int half) {
  const int in_rows = m->term_step == 1, turned = in_rows == m->of_b;
  const int64_t places = m->tile_places, terms = m->tile_terms - half * GH_EDGE;
  const int64_t step = in_rows ? m->place_step : m->term_step, ahead = GH_DEEP * m->term_step;
  const float *from = m->tile_from + half * GH_EDGE * m->term_step;
  float *to = m->halves[half];
  for (int i = 0; i < GH_EDGE; i++) __builtin_prefetch(from + i * step + ahead, 0, 3); /* the next terms */
  if (turned && places >= GH_EDGE && terms >= GH_EDGE) {
    gh_turn_square(from, step, to, GH_EDGE);
    return;
  }
  gh_square(from, step, in_rows ? places : terms, in_rows ? terms : places, to);
  if (turned) gh_turn_square(to, GH_EDGE, to, GH_EDGE);
}

GH_FN void gh_split_row(gh_maker *m, int row) {
  const __m512 first = _mm512_load_ps(m->halves[0] + row * GH_EDGE);
  const __m512 second = _mm512_load_ps(m->halves[1] + row * GH_EDGE);
  gh_split(first, second, m->tile_to + 2 * GH_EDGE * row, &m->spoilt);
}

/* All tiles, one after the other. */
static __attribute__((noinline)) void gh_make_all(gh_maker *m) {
  for (; m->tile < m->tiles; m->tile++) {
    gh_begin_tile(m);
    gh_fill_half(m, 0);
    gh_fill_half(m, 1);
    for (int row = 0; row < GH_EDGE; row++) gh_split_row(m, row);
  }
}

/* Some of a tile, a few instructions. */
static __attribute__((noinline)) void gh_make_turn(gh_maker *m) {
  if (!m->done) gh_begin_tile(m);
  if (m->done < 2) gh_fill_half(m, m->done);
  else gh_split_row(m, m->done - 2);
  if (++m->done < GH_TURNS) return;
  m->done = 0;
  m->tile++;
}

/* At each chance so many turns that all are taken at the last one. */
GH_FN void gh_make_some(gh_maker *m) {
  for (m->credit += m->turns; m->credit >= m->chances; m->credit -= m->chances) gh_make_turn(m);
}

/* ---- the unit ------------------------------------------------------------------------------- */

#define GH_LEFT(part)                                     \
  do {                                                    \
    _tile_loadd(4, GH_PART(a, 0, part), 64);              \
    if (tall) _tile_loadd(5, GH_PART(a, 1, part), 64);    \
  } while (0)
#define GH_RIGHT(part)                                    \
  do {                                                    \
    _tile_loadd(6, GH_PART(b, 0, part), 64);              \
    if (wide) _tile_loadd(7, GH_PART(b, 1, part), 64);    \
  } while (0)
#define GH_MULTIPLY                                       \
  do {                                                    \
    _tile_dpbf16ps(0, 4, 6);                              \
    if (wide) _tile_dpbf16ps(1, 4, 7);                    \
    if (tall) _tile_dpbf16ps(2, 5, 6);                    \
    if (tall && wide) _tile_dpbf16ps(3, 5, 7);            \
    gh_make_some(next);                                   \
  } while (0)
enum { GH_CHANCES = 6 }; /* of 32 terms of two panels: products of parts */

/* c = a b for a panel each, or c += a b: `deep` times 32 terms. Not `tall`: 16 rows; not `wide`: 16
   columns. The order of the parts is one in which a product loads one side again. Meanwhile `next` is
   made: the unit takes long for its products, and other instructions run beside them. */
GH_FN void gh_multiply_panels(const uint16_t *a, const uint16_t *b, int64_t deep, float *c, int64_t c_row,
                              const int tall, const int wide, int add, gh_maker *next) {
  enum { HIGH, MIDDLE, LOW };
  gh_begin_results(c, c_row, tall, wide, add);
  for (int64_t k = 0; k < deep; k++, a += GH_PARTS, b += GH_PARTS) {
    GH_LEFT(HIGH);
    GH_RIGHT(LOW);
    GH_MULTIPLY;
    GH_RIGHT(MIDDLE);
    GH_MULTIPLY;
    GH_LEFT(MIDDLE);
    GH_MULTIPLY;
    GH_RIGHT(HIGH);
    GH_MULTIPLY;
    GH_LEFT(LOW);
    GH_MULTIPLY;
    GH_LEFT(HIGH);
    GH_MULTIPLY;
  }
  gh_store_results(c, c_row, tall, wide);
}

/* ---- products ------------------------------------------------------------------------------- */

/* c (+)= a b for a panel each, of which `rows` rows and `columns` columns are there, + a bias, if any. */
GH_FN void gh_multiply_some(const uint16_t *a, const uint16_t *b, int64_t deep, float *c, int64_t c_row,
                            int64_t rows, int64_t columns, int add, const float *bias, gh_maker *next) {
  if (!bias && rows >= GH_PAIR && columns >= GH_PAIR) {
    for (int i = GH_PAIR; i < 2 * GH_PAIR && !add && i < rows; i++) { /* fetched for what comes next */
      __builtin_prefetch(c + i * c_row, 1, 3);
      __builtin_prefetch(c + i * c_row + GH_EDGE, 1, 3);
    }
    gh_multiply_panels(a, b, deep, c, c_row, 1, 1, add, next);
    return;
  }
  float own[GH_PAIR * GH_PAIR] __attribute__((aligned(64)));
  if (rows > GH_EDGE && columns > GH_EDGE) gh_multiply_panels(a, b, deep, own, GH_PAIR, 1, 1, 0, next);
  else if (rows > GH_EDGE) gh_multiply_panels(a, b, deep, own, GH_PAIR, 1, 0, 0, next);
  else if (columns > GH_EDGE) gh_multiply_panels(a, b, deep, own, GH_PAIR, 0, 1, 0, next);
  else gh_multiply_panels(a, b, deep, own, GH_PAIR, 0, 0, 0, next);
  rows = gh_least(rows, GH_PAIR);
  columns = gh_least(columns, GH_PAIR);
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < columns; j += GH_EDGE) {
      const __mmask16 there = gh_there(columns - j);
      float *to = c + i * c_row + j;
      __m512 sum = _mm512_load_ps(own + i * GH_PAIR + j);
      if (add) sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(there, to));
      if (bias) sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(there, bias + j));
      _mm512_mask_storeu_ps(to, there, sum);
    }
}

/* The same sums one after another, in float32: for elements without parts. */
static void gh_multiply_plainly(const gh_tile_product *s, const gh_block *at) {
  const float *a = (const float *)s->a + at->a, *b = (const float *)s->b + at->b;
  const float *bias = s->bias ? (const float *)s->bias + at->column : 0;
  for (int64_t i = 0; i < at->rows; i++) {
    float *c = (float *)s->c + at->c + i * s->columns;
    for (int64_t j = 0; j < at->columns; j++) c[j] = 0;
    for (int64_t k = 0; k < s->depth; k++)
      for (int64_t j = 0; j < at->columns; j++)
        c[j] += a[i * s->a_row + k * s->a_term] * b[k * s->b_term + j * s->b_column];
    for (int64_t j = 0; j < at->columns && bias; j++) c[j] += bias[j];
  }
}

/* A block of an item by one core, in its own panels. Those of a stay in its cache while those of b pass
   by, two of them: one that is multiplied, and the next. */
static void gh_multiply_split(const gh_tile_product *s, const gh_block *at, uint16_t *panels) {
  const float *a = (const float *)s->a + at->a, *b = (const float *)s->b + at->b;
  const float *bias = s->bias ? (const float *)s->bias + at->column : 0;
  float *c = (float *)s->c + at->c;
  const int64_t down = gh_times(at->rows, GH_PAIR), columns = at->columns;
  const int64_t most = gh_even(gh_times(s->depth, GH_DEEP), GH_MOST_DEEP);
  uint16_t *of_b[2] = {panels + down * most * GH_PARTS, panels + (down + 1) * most * GH_PARTS};
  __m512 spoilt = _mm512_setzero_ps();
  gh_maker next;
  for (int64_t k = 0; k < s->depth; k += most * GH_DEEP) {
    const int64_t terms = gh_least(most * GH_DEEP, s->depth - k), deep = gh_times(terms, GH_DEEP);
    const float *from = b + k * s->b_term;
    gh_begin(&next, a + k * s->a_term, s->a_row, s->a_term, at->rows, terms, panels, 0, 1);
    gh_make_all(&next);
    spoilt = _mm512_add_ps(spoilt, next.spoilt);
    gh_begin(&next, from, s->b_column, s->b_term, gh_least(columns, GH_PAIR), terms, of_b[0], 1, 1);
    gh_make_all(&next);
    spoilt = _mm512_add_ps(spoilt, next.spoilt);
    for (int64_t n = 0; n * GH_PAIR < columns; n++) {
      const int64_t j = n * GH_PAIR, after = j + GH_PAIR, left = gh_least(columns - after, GH_PAIR);
      gh_begin(&next, from + after * s->b_column, s->b_column, s->b_term, left, terms, of_b[(n + 1) % 2],
               1, GH_CHANCES * down * deep);
      for (int64_t i = 0; i < down; i++)
        gh_multiply_some(panels + i * deep * GH_PARTS, of_b[n % 2], deep, c + i * GH_PAIR * s->columns + j,
                         s->columns, at->rows - i * GH_PAIR, columns - j, k > 0, bias && !k ? bias + j : 0,
                         &next);
      spoilt = _mm512_add_ps(spoilt, next.spoilt);
    }
  }
  if (_mm512_cmp_ps_mask(spoilt, spoilt, _CMP_UNORD_Q)) gh_multiply_plainly(s, at);
}
