/* Products of bfloat16 by the unit for matrices of them, summed in float32 and rounded once.

   A panel has for 32 terms of the sums after the other its two tiles. A row of a tile has 16 pairs of terms
   of one row of a; or, of b, one pair of terms of 16 columns. A pair is 32 bits, as in memory where terms
   lie one after the other. */
enum {
  GH_STEP = 2 * GH_PART_SIZE,      /* elements of a panel for 32 terms */
  GH_GROUP_STEPS = 120,            /* of all panels of b that pass by together */
};

/* Panels in the making: of a, or of b (`of_b`), `places` rows or columns from `from` on by `terms` terms,
   a tile after the other. */
typedef struct {
  const uint16_t *from;
  uint16_t *to;
  int64_t place_step, term_step, places, terms, deep, tiles, tile;
  int64_t chances, credit; /* see gh_make_chance */
  int of_b;
} gh_pair_maker;

/* Begin with panels, which are made within so many chances. */

GH_FN void gh_begin_pairs(gh_pair_maker *m, const uint16_t *from, int64_t place_step, int64_t term_step,
                          int64_t places, int64_t terms, uint16_t *to, int of_b, int64_t chances) {
  m->from = from;
  m->to = to;
  m->place_step = place_step;
  m->term_step = term_step;
  m->places = places;
  m->terms = terms;
  m->deep = gh_times(terms, GH_DEEP);
  m->tiles = places > 0 ? gh_times(places, GH_EDGE) * m->deep : 0;
  m->chances = chances;
  m->tile = m->credit = 0;
  m->of_b = of_b;
}

/* Which of 32 elements are there, of `count` from the first on. */
GH_FN __mmask32 gh_there_32(int64_t count) {
  return count >= 32 ? ~(__mmask32)0 : count > 0 ? ((__mmask32)1 << count) - 1 : 0;
}

/* A row for each of 16 places, with 16 pairs of terms, which lie one after the other. */
GH_FN void gh_rows_of_places(const uint16_t *from, int64_t step, int64_t places, int64_t terms, float *to) {
  const __mmask32 there = gh_there_32(terms);
  for (int i = 0; i < GH_EDGE; i++)
    _mm512_store_si512(to + i * GH_EDGE, _mm512_maskz_loadu_epi16(i < places ? there : 0, from + i * step));
}

/* A row for each of 16 pairs of terms, with 16 places, which lie one after the other. */
GH_FN void gh_rows_of_pairs(const uint16_t *from, int64_t step, int64_t places, int64_t terms, float *to) {
  const __mmask16 there = gh_there(places);
  for (int i = 0; i < GH_EDGE; i++, from += 2 * step) {
    const __m256i first = _mm256_maskz_loadu_epi16(2 * i < terms ? there : 0, from);
    const __m256i second = _mm256_maskz_loadu_epi16(2 * i + 1 < terms ? there : 0, from + step);
    const __m512i upper = _mm512_slli_epi32(_mm512_cvtepu16_epi32(second), 16);
    _mm512_store_si512(to + i * GH_EDGE, _mm512_or_si512(_mm512_cvtepu16_epi32(first), upper));
  }
}

/* The next tile. The order is one in which lines of the cache are read that lie one after the other. */
static __attribute__((noinline)) void gh_make_tile(gh_pair_maker *m) {
  const int64_t n = m->tile++, deep = m->deep, across = m->tiles / deep;
  const int in_rows = m->term_step == 1;
  const int64_t k = in_rows ? n % deep : n / across, t = in_rows ? n / deep : n % across;
  const uint16_t *from = m->from + t * GH_EDGE * m->place_step + k * GH_DEEP * m->term_step;
  float *to = (float *)(m->to + (t / 2 * deep + k) * GH_STEP + t % 2 * GH_PART_SIZE);
  const int64_t places = m->places - t * GH_EDGE, terms = m->terms - k * GH_DEEP;
  if (in_rows) gh_rows_of_places(from, m->place_step, places, terms, to);
  else gh_rows_of_pairs(from, m->term_step, places, terms, to);
  if (in_rows == m->of_b) gh_turn_square(to, GH_EDGE, to, GH_EDGE);
}

/* At each chance so many tiles that all are made at the last one. */
GH_FN void gh_make_chance(gh_pair_maker *m) {
  for (m->credit += m->tiles; m->credit >= m->chances; m->credit -= m->chances) gh_make_tile(m);
}

/* 16 numbers of bfloat16, of which `there` are, in float32. */
GH_FN __m512 gh_widened(const uint16_t *from, __mmask16 there) {
  return (__m512)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(there, from)), 16);
}

/* Results of two panels on their way to where they belong: + a bias, rounded, a row after the other. */
typedef struct {
  __m512 first, second; /* of the bias */
  const float *from;
  uint16_t *to;
  int64_t to_row;
  __mmask32 there;
  int rows;
} gh_rounder;

GH_FN void gh_begin_rounding(gh_rounder *r, const float *from, const uint16_t *bias, uint16_t *to,
                             int64_t to_row, int64_t rows, int64_t columns) {
  r->first = bias ? gh_widened(bias, gh_there(columns)) : _mm512_setzero_ps();
  r->second = bias ? gh_widened(bias + GH_EDGE, gh_there(columns - GH_EDGE)) : _mm512_setzero_ps();
  r->from = from;
  r->to = to;
  r->to_row = to_row;
  r->there = gh_there_32(columns);
  r->rows = (int)gh_least(rows, GH_PAIR);
}

/* At most so many rows. */
GH_FN void gh_round_rows(gh_rounder *r, int most) {
  for (; r->rows && most; most--, r->rows--, r->from += GH_PAIR, r->to += r->to_row) {
    const __m512 left = _mm512_add_ps(_mm512_load_ps(r->from), r->first);
    const __m512 right = _mm512_add_ps(_mm512_load_ps(r->from + GH_EDGE), r->second);
    _mm512_mask_storeu_epi16(r->to, r->there, (__m512i)_mm512_cvtne2ps_pbh(right, left));
  }
}

/* Prefetches into a core's cache during a product: lines of the panel of b that comes next, and those
   that its results are written to after it. A store that misses holds up all that follow. */
typedef struct {
  const char *panel;
  const uint16_t *results;
  int64_t results_row;
  int lines; /* of the panel, for 32 terms */
  int rows;  /* of the results */
} gh_fetcher;

GH_FN void gh_fetch(gh_fetcher *f, int most) {
  for (int i = 0; i < f->lines; i++, f->panel += 64) _mm_prefetch(f->panel, _MM_HINT_T1);
  for (; f->rows && most; most--, f->rows--, f->results += f->results_row)
    __builtin_prefetch(f->results, 1, 3);
}

/* Work that runs beside products: the unit takes long for them. */
typedef struct {
  gh_rounder before;
  gh_pair_maker next;
  gh_fetcher fetched;
} gh_beside;

/* c = a b for a panel each, `deep` times 32 terms. Not `tall`: 16 rows; not `wide`: 16 columns. */
GH_FN void gh_multiply_pairs(const uint16_t *a, const uint16_t *b, int64_t deep, float *c, const int tall,
                             const int wide, gh_beside *beside) {
  const int rows = (int)gh_times(GH_PAIR, deep);
  gh_begin_results(c, GH_PAIR, tall, wide, 0);
  for (int64_t k = 0; k < deep; k++, a += GH_STEP, b += GH_STEP) {
    _tile_loadd(4, a, 64);
    _tile_loadd(6, b, 64);
    _tile_dpbf16ps(0, 4, 6);
    if (wide) {
      _tile_loadd(7, b + GH_PART_SIZE, 64);
      _tile_dpbf16ps(1, 4, 7);
    }
    gh_round_rows(&beside->before, rows);
    if (tall) {
      _tile_loadd(5, a + GH_PART_SIZE, 64);
      _tile_dpbf16ps(2, 5, 6);
    }
    if (tall && wide) _tile_dpbf16ps(3, 5, 7);
    gh_fetch(&beside->fetched, rows);
    gh_make_chance(&beside->next);
  }
  gh_store_results(c, GH_PAIR, tall, wide);
}

/* A block of an item by one core, in its own panels. Those of a stay in its cache while those of b pass
   by. They are there (`packed`), or made here, two of them: one that is multiplied, and the next. */
static void gh_multiply_narrow(const gh_tile_product *s, const gh_block *at, uint16_t *panels) {
  const uint16_t *a = (const uint16_t *)s->a + at->a, *b = (const uint16_t *)s->b + at->b;
  const uint16_t *bias = s->bias ? (const uint16_t *)s->bias + at->column : 0;
  const int64_t down = gh_times(at->rows, GH_PAIR), across = gh_times(at->columns, GH_PAIR);
  const int64_t deep = gh_times(s->depth, GH_DEEP), size = deep * GH_STEP;
  const int64_t group = at->packed && deep < GH_GROUP_STEPS ? GH_GROUP_STEPS / deep : 1;
  uint16_t *of_b[2] = {panels + down * size, panels + (down + 1) * size};
  float results[2][GH_PAIR * GH_PAIR] __attribute__((aligned(64)));
  gh_beside beside = {.before = {.rows = 0}, .fetched = {.results_row = s->columns}};
  gh_pair_maker *next = &beside.next;
  int turn = 0;
  gh_begin_pairs(next, a, s->a_row, s->a_term, at->rows, s->depth, panels, 0, 1);
  gh_make_chance(next);
  gh_begin_pairs(next, b, s->b_column, s->b_term, at->packed ? 0 : gh_least(at->columns, GH_PAIR), s->depth,
                 of_b[0], 1, 1);
  gh_make_chance(next);
  for (int64_t first = 0; first < across; first += group) {
    const int64_t end = gh_least(across, first + group), after = end * GH_PAIR;
    const uint16_t *with = at->packed ? at->packed + first * size : of_b[first % 2];
    beside.fetched.panel = (const char *)(with + (end - first) * size);
    beside.fetched.lines = at->packed ? (int)gh_times(2 * GH_EDGE, down) : 0;
    gh_begin_pairs(next, b + after * s->b_column, s->b_column, s->b_term,
                   at->packed ? 0 : gh_least(at->columns - after, GH_PAIR), s->depth, of_b[end % 2], 1,
                   down * deep);
    for (int64_t i = 0; i < down; i++)
      for (int64_t n = first; n < end; n++) {
        const uint16_t *of_a = panels + i * size, *of_n = with + (n - first) * size;
        const int64_t rows = at->rows - i * GH_PAIR, columns = at->columns - n * GH_PAIR;
        const int tall = rows > GH_EDGE, wide = columns > GH_EDGE;
        float *to = results[turn ^= 1];
        uint16_t *result = (uint16_t *)s->c + at->c + i * GH_PAIR * s->columns + n * GH_PAIR;
        beside.fetched.results = result;
        beside.fetched.rows = (int)gh_least(rows, GH_PAIR);
        if (tall && wide) gh_multiply_pairs(of_a, of_n, deep, to, 1, 1, &beside);
        else if (tall) gh_multiply_pairs(of_a, of_n, deep, to, 1, 0, &beside);
        else if (wide) gh_multiply_pairs(of_a, of_n, deep, to, 0, 1, &beside);
        else gh_multiply_pairs(of_a, of_n, deep, to, 0, 0, &beside);
        gh_begin_rounding(&beside.before, to, bias ? bias + n * GH_PAIR : 0, result, s->columns, rows,
                          columns);
      }
  }
  gh_round_rows(&beside.before, GH_PAIR);
}

/* An item whose panels of b cores first make together, so many of them at a time that they stay near, before
   they share the blocks. */
static void gh_share_packed(const gh_tile_product *s, uint16_t *packed, int64_t most, uint16_t *panels,
                            int64_t part, int most_threads) {
  const int64_t across = gh_times(s->columns, GH_PAIR), size = gh_times(s->depth, GH_DEEP) * GH_STEP;
  const int64_t blocks = gh_times(s->rows, s->block_rows), threads = gh_threads(most_threads);
  #pragma omp parallel num_threads(threads)
  {
    gh_take_tiles();
    for (int64_t first = 0; first < across; first += most) {
      const int64_t count = gh_least(most, across - first);
      int64_t strips = 1; /* of the columns: for as much work for each core */
      while (blocks * strips % threads && blocks * strips < 8 * threads && strips < count) strips++;
      #pragma omp for schedule(static)
      for (int64_t n = 0; n < count; n++) {
        const int64_t column = (first + n) * GH_PAIR, columns = gh_least(s->columns - column, GH_PAIR);
        gh_pair_maker m;
        gh_begin_pairs(&m, (const uint16_t *)s->b + column * s->b_column, s->b_column, s->b_term, columns,
                       s->depth, packed + n * size, 1, 1);
        gh_make_chance(&m);
      }
      #pragma omp for collapse(2) schedule(static)
      for (int64_t block = 0; block < blocks; block++)
        for (int64_t strip = 0; strip < strips; strip++) {
          const int64_t row = block * s->block_rows, begin = count * strip / strips;
          const int64_t column = (first + begin) * GH_PAIR;
          const int64_t end = gh_least(s->columns, (first + count * (strip + 1) / strips) * GH_PAIR);
          gh_block at = {row * s->a_row, 0, row * s->columns + column, column, 0, end - column,
                         packed + begin * size};
          at.rows = gh_least(s->block_rows, s->rows - row);
          gh_multiply_narrow(s, &at, panels + omp_get_thread_num() * part);
        }
    }
    _tile_release();
  }
}

/* Cores share the work; `most` panels of b are made before, after the cores' own, or none. */
static void gh_share_narrow(const gh_tile_product *s, uint16_t *panels, int64_t part, int most_threads,
                            int64_t most) {
  if (most) gh_share_packed(s, panels + most_threads * part, most, panels, part, most_threads);
  else gh_share_blocks(s, gh_multiply_narrow, panels, part, most_threads);
}
