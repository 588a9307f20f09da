/* The unit for matrices of bfloat16 (Intel's AMX), and how cores share a product of matrices.

   Matrices are brought into panels: 32 rows of a, or columns of b, which are two tiles of the unit. */
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
  GH_EDGE = 16,       /* rows of a tile, columns of its result */
  GH_DEEP = 32,       /* terms of sums in a tile */
  GH_PAIR = 32,       /* rows or columns of a panel */
  GH_PART_SIZE = 512, /* elements of a tile */
  GH_ITEM_AXES = 4
};

/* c = a b + bias, without a bias if that is 0: (items, rows, depth) by (items, depth, columns). Steps are
   those between elements; the axes of the items, outermost first, have their own steps. A core takes
   `block_rows` rows at a time. */
typedef struct {
  const void *a, *b, *bias;
  void *c;
  int64_t rows, columns, depth, a_row, a_term, b_term, b_column, block_rows;
  int64_t counts[GH_ITEM_AXES], a_steps[GH_ITEM_AXES], b_steps[GH_ITEM_AXES];
} gh_tile_product;

/* A block of an item: where its elements begin in a, b and c, the first of its columns, its size, and its
   panels of b where they are made already. */
typedef struct { int64_t a, b, c, column, rows, columns; const uint16_t *packed; } gh_block;

GH_FN int64_t gh_least(int64_t a, int64_t b) { return a < b ? a : b; }
GH_FN int64_t gh_times(int64_t count, int64_t unit) { return (count + unit - 1) / unit; }

/* At most `most`, so that all of `count` are in parts of the same size. */
GH_FN int64_t gh_even(int64_t count, int64_t most) { return gh_times(count, gh_times(count, most)); }

/* Which of 16 elements are there, of `count` from the first on; none if that is negative. */
GH_FN __mmask16 gh_there(int64_t count) {
  return count >= 16 ? (__mmask16)0xffff : count > 0 ? (__mmask16)((1u << count) - 1) : (__mmask16)0;
}

/* The system gives the registers to a process that asks for them (ARCH_REQ_XCOMP_PERM, XTILEDATA). */
__attribute__((constructor)) static void gh_ask_for_tiles(void) { syscall(SYS_arch_prctl, 0x1023, 18); }

static const struct { uint8_t palette, start, reserved[14]; uint16_t row_bytes[16]; uint8_t rows[16]; }
  gh_tiles = {1, 0, {0}, {64, 64, 64, 64, 64, 64, 64, 64}, {16, 16, 16, 16, 16, 16, 16, 16}};

/* Tiles 0 to 3 are results, two by two; 4 and 5 are of a, 6 and 7 of b. gcc's own function would not
   tell the compiler that all of the structure is read. */
GH_FN void gh_take_tiles(void) { __asm__ volatile("ldtilecfg %0" : : "m"(gh_tiles)); }

/* Begin with the results of four tiles: zeros, or what is in memory. */
GH_FN void gh_begin_results(const float *c, int64_t c_row, const int tall, const int wide, int add) {
  const int64_t bytes = 4 * c_row;
  const float *below = c + GH_EDGE * c_row;
  if (add) {
    _tile_loadd(0, c, bytes);
    if (wide) _tile_loadd(1, c + GH_EDGE, bytes);
    if (tall) _tile_loadd(2, below, bytes);
    if (tall && wide) _tile_loadd(3, below + GH_EDGE, bytes);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
}

GH_FN void gh_store_results(float *c, int64_t c_row, const int tall, const int wide) {
  const int64_t bytes = 4 * c_row;
  float *below = c + GH_EDGE * c_row;
  _tile_stored(0, c, bytes);
  if (wide) _tile_stored(1, c + GH_EDGE, bytes);
  if (tall) _tile_stored(2, below, bytes);
  if (tall && wide) _tile_stored(3, below + GH_EDGE, bytes);
}

/* The block at the beginning of an item. */
GH_FN gh_block gh_item_of(const gh_tile_product *s, int64_t number) {
  gh_block item = {0, 0, number * s->rows * s->columns, 0, s->rows, s->columns, 0};
  for (int axis = GH_ITEM_AXES - 1; axis >= 0; axis--) {
    const int64_t i = number % s->counts[axis];
    number /= s->counts[axis];
    item.a += i * s->a_steps[axis];
    item.b += i * s->b_steps[axis];
  }
  return item;
}

/* Cores share the blocks of all items; each has `part` elements of the memory for panels. */
static void gh_share_blocks(const gh_tile_product *s,
                            void (*multiply)(const gh_tile_product *, const gh_block *, uint16_t *),
                            uint16_t *panels, int64_t part, int most_threads) {
  const int64_t across = gh_times(s->columns, GH_PAIR);
  const int64_t blocks = gh_times(s->rows, s->block_rows), threads = gh_threads(most_threads);
  int64_t tasks = blocks, strips = 1; /* strips of the columns: for as much work for each core */
  for (int axis = 0; axis < GH_ITEM_AXES; axis++) tasks *= s->counts[axis];
  const int64_t items = tasks / blocks;
  while (tasks * strips % threads && tasks * strips < 8 * threads && strips < across) strips++;
  #pragma omp parallel num_threads(threads)
  {
    gh_take_tiles();
    #pragma omp for collapse(3) schedule(static)
    for (int64_t n = 0; n < items; n++)
      for (int64_t strip = 0; strip < strips; strip++)
        for (int64_t block = 0; block < blocks; block++) {
          const int64_t row = block * s->block_rows, column = across * strip / strips * GH_PAIR;
          const int64_t end = gh_least(s->columns, across * (strip + 1) / strips * GH_PAIR);
          gh_block at = gh_item_of(s, n);
          at.a += row * s->a_row;
          at.b += column * s->b_column;
          at.c += row * s->columns + column;
          at.column = column;
          at.rows = gh_least(s->block_rows, s->rows - row);
          at.columns = end - column;
          multiply(s, &at, panels + omp_get_thread_num() * part);
        }
    _tile_release();
  }
}
