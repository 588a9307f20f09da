/* Collectives of ranks of one machine, through memory that all of them have mapped.

   Ranks move in phases. In a phase each tells (writes into its own slot), publishes that it has
   told, waits until all have, and hears (reads the slots of others). Slots are there twice and taken
   in turn: a rank that tells in phase p + 2 knows that all have told in p + 1, so have heard in p.
   The first phase of a call compares what the ranks have called. A rank that waits spins, then
   gives way, then sleeps; after a while it returns UNDER_WAY, and the caller, who sees to signals,
   limits and dead ranks, calls again. Messages from one rank to one other have channels of two
   pieces each, and no phases. native_calls.py writes the kinds of calls (ALL_REDUCE …) and of sums
   (SUM …) in front, from the table in ops/exchange.py. */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#ifdef __linux__
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "gh_math.h"

enum { DONE, UNDER_WAY, DIFFERENT, FAILED };
enum { SLOT = 1 << 20, PIECE = 1 << 18, BLOCK = 1024, YIELDS = 64, STREAMED = 1 << 15, SLEEP_NS = 20000000 };

/* A rank's call: the same on all ranks of the group, or nothing is moved. `digest` is of the whole
   request, with shape and axes. */
typedef struct {
  int64_t number, kind, dtype, argument, count, digest;
} Header;

typedef struct {
  _Alignas(64) _Atomic uint64_t told; /* the phases that the rank has published */
  _Alignas(64) _Atomic uint32_t bell, sleepers;
  _Alignas(64) Header headers[2];
  char rest[64];
} Rank;

typedef struct {
  _Alignas(64) _Atomic uint64_t written; /* pieces */
  _Alignas(64) _Atomic uint64_t read;
  _Alignas(64) Header headers[2];
} Channel;

/* A rank's view of its group; Python has the same structure. */
typedef struct {
  char *memory;
  _Atomic uint32_t *failed;
  int64_t rank, size, spins, small_bytes;
  uint64_t phase;
  int64_t number;
  _Atomic int64_t sent_bytes;
} Group;

/* A call under way; Python has the same structure. */
typedef struct {
  Header header;
  const char *source;
  char *out;
  int64_t item_bytes, step, told, peer, at;
} Call;

static Rank *rank_of(const Group *g, int64_t r) { return (Rank *)g->memory + r; }

static char *slot(const Group *g, int64_t r) { /* of the phase that the group is in */
  char *slots = g->memory + g->size * sizeof(Rank);
  return slots + (2 * r + (int64_t)(g->phase & 1)) * SLOT;
}

static char *channel(const Group *g, int64_t from, int64_t to) {
  char *channels = g->memory + g->size * (sizeof(Rank) + 2 * SLOT);
  return channels + (from * g->size + to) * (int64_t)(sizeof(Channel) + 2 * PIECE);
}

int64_t gh_group_bytes(int64_t size) {
  return size * (sizeof(Rank) + 2 * SLOT) + size * size * (sizeof(Channel) + 2 * PIECE);
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* Copies, past the caches where it is part of `much`: another core fetches lines from memory faster
   than from the caches of the one that wrote them. */
static void copy(char *to, const char *from, int64_t nbytes, int64_t much) {
  int64_t i = 0;
#ifdef __SSE2__
  if (much >= STREAMED && nbytes >= 64) {
    i = -(intptr_t)to & 63;
    memcpy(to, from, (size_t)i);
    for (; i + 64 <= nbytes; i += 64) {
      const __m128i *s = (const __m128i *)(from + i);
      const __m128i a = _mm_loadu_si128(s), b = _mm_loadu_si128(s + 1);
      const __m128i c = _mm_loadu_si128(s + 2), d = _mm_loadu_si128(s + 3);
      __m128i *t = (__m128i *)(to + i);
      _mm_stream_si128(t, a);
      _mm_stream_si128(t + 1, b);
      _mm_stream_si128(t + 2, c);
      _mm_stream_si128(t + 3, d);
    }
    _mm_sfence();
  }
#endif
  memcpy(to + i, from + i, (size_t)(nbytes - i));
}

/* Bytes told to so many readers. */
static void tell(Group *g, char *to, const char *from, int64_t nbytes, int64_t readers) {
  if (nbytes <= 0) return;
  copy(to, from, nbytes, nbytes);
  atomic_fetch_add_explicit(&g->sent_bytes, nbytes * readers, memory_order_relaxed);
}

/* -- waiting ----------------------------------------------------------------------------------- */

static int64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Sleeps until the bell is rung; 0 if that did not happen: time is up, or a signal came. */
static int sleep_until_rung(_Atomic uint32_t *bell, uint32_t heard, int64_t ns) {
  struct timespec left = {0, ns};
#ifdef __linux__
  return syscall(SYS_futex, bell, FUTEX_WAIT, heard, &left, NULL, 0) == 0 || errno == EAGAIN;
#else
  left.tv_nsec = ns < 200000 ? ns : 200000;
  nanosleep(&left, NULL);
  return errno != EINTR;
#endif
}

static void ring(Rank *of) {
  if (!atomic_load(&of->sleepers)) return;
  atomic_fetch_add(&of->bell, 1);
#ifdef __linux__
  syscall(SYS_futex, &of->bell, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
#endif
}

static inline void pause_shortly(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

typedef int (*Condition)(Group *, Call *);

/* Until the condition holds: DONE; or the world has failed, or the caller should look around. */
static int wait_until(Group *g, Call *c, Condition holds) {
  for (int64_t i = 0; i < g->spins; i++) {
    if (holds(g, c)) return DONE;
    pause_shortly();
  }
  for (int i = 0; i < YIELDS; i++) {
    if (holds(g, c)) return DONE;
    sched_yield();
  }
  Rank *own = rank_of(g, g->rank);
  const int64_t end = now_ns() + SLEEP_NS;
  int code = UNDER_WAY;
  atomic_fetch_add(&own->sleepers, 1);
  for (int woken = 1; woken;) {
    const uint32_t heard = atomic_load(&own->bell);
    const int64_t left = end - now_ns();
    if (holds(g, c)) code = DONE;
    else if (atomic_load(g->failed)) code = FAILED;
    if (code != UNDER_WAY || left <= 0) break;
    woken = sleep_until_rung(&own->bell, heard, left);
  }
  atomic_fetch_sub(&own->sleepers, 1);
  return code;
}

/* -- phases ------------------------------------------------------------------------------------ */

static int has_told(Group *g, int64_t r) {
  return atomic_load_explicit(&rank_of(g, r)->told, memory_order_acquire) > g->phase;
}

static int all_have_told(Group *g, Call *c) {
  for (int64_t r = 0; r < g->size; r++)
    if (!has_told(g, r)) return 0;
  return 1;
}

/* Whether a rank that is here has called something else. */
static int is_different(Group *g, const Call *c) {
  for (int64_t r = 0; r < g->size; r++) {
    const Header *other = &rank_of(g, r)->headers[c->header.number & 1];
    if (has_told(g, r) && memcmp(other, &c->header, sizeof(Header))) return 1;
  }
  return 0;
}

static void publish(Group *g) {
  atomic_store(&rank_of(g, g->rank)->told, g->phase + 1);
  for (int64_t r = 0; r < g->size; r++)
    if (r != g->rank) ring(rank_of(g, r));
}

/* -- adding up --------------------------------------------------------------------------------- */

#define AS_IT_IS(x) (x)
#define EACH for (int64_t i = 0; i < count; i++)
/* The first rank's elements, then those of the others in their order. */
#define REDUCTION(name, type, wide, load, store)                                          \
  static void name(int64_t how, int64_t n, const char **from, int64_t count, char *to) {  \
    wide sum[BLOCK];                                                                      \
    const type *s = (const type *)from[0];                                                \
    EACH sum[i] = load(s[i]);                                                             \
    for (int64_t r = 1; r < n; r++) {                                                     \
      s = (const type *)from[r];                                                          \
      if (how == SUM || how == MEAN)                                                      \
        EACH sum[i] += load(s[i]);                                                        \
      else if (how == MAX)                                                                \
        EACH {                                                                            \
          const wide x = load(s[i]);                                                      \
          sum[i] = (sum[i] > x) | (sum[i] != sum[i]) ? sum[i] : x;                        \
        }                                                                                 \
      else                                                                                \
        EACH {                                                                            \
          const wide x = load(s[i]);                                                      \
          sum[i] = (sum[i] < x) | (sum[i] != sum[i]) ? sum[i] : x;                        \
        }                                                                                 \
    }                                                                                     \
    if (how == MEAN) EACH sum[i] /= (wide)n;                                              \
    EACH ((type *)to)[i] = (type)store(sum[i]);                                           \
  }

REDUCTION(reduce_i8, int8_t, int8_t, AS_IT_IS, AS_IT_IS)
REDUCTION(reduce_i16, int16_t, int16_t, AS_IT_IS, AS_IT_IS)
REDUCTION(reduce_i32, int32_t, int32_t, AS_IT_IS, AS_IT_IS)
REDUCTION(reduce_i64, int64_t, int64_t, AS_IT_IS, AS_IT_IS)
REDUCTION(reduce_u8, uint8_t, uint8_t, AS_IT_IS, AS_IT_IS)
REDUCTION(reduce_u16, uint16_t, uint16_t, AS_IT_IS, AS_IT_IS)
REDUCTION(reduce_u32, uint32_t, uint32_t, AS_IT_IS, AS_IT_IS)
REDUCTION(reduce_u64, uint64_t, uint64_t, AS_IT_IS, AS_IT_IS)
REDUCTION(reduce_f16, uint16_t, float, gh_f16_to_f32, gh_f32_to_f16)
REDUCTION(reduce_bf16, uint16_t, float, gh_bf16_to_f32, gh_f32_to_bf16)
REDUCTION(reduce_f32, float, float, AS_IT_IS, AS_IT_IS)
REDUCTION(reduce_f64, double, double, AS_IT_IS, AS_IT_IS)

typedef void (*Reduction)(int64_t, int64_t, const char **, int64_t, char *);

/* By the order of base/dtype.py: all_dtypes. Truth values are 0 and 1, and add up to their maximum;
   complex numbers are added part by part. */
static const Reduction reductions[] = {
    reduce_u8,  reduce_i8,  reduce_i16, reduce_i32,  reduce_i64, reduce_u8,  reduce_u16, reduce_u32,
    reduce_u64, reduce_f16, reduce_bf16, reduce_f32, reduce_f64, reduce_f32, reduce_f64};
enum { BOOL, COMPLEX = 13 };

/* Adds up `nbytes` from each rank into `out`, and into `told` as well where that is given. */
static void reduce_all(const Group *g, const Call *c, const char **from, int64_t nbytes, char *out,
                       char *told) {
  const int64_t dtype = c->header.dtype;
  const int64_t how = dtype == BOOL && c->header.argument == SUM ? MAX : c->header.argument;
  const int64_t item = dtype >= COMPLEX ? c->item_bytes / 2 : c->item_bytes;
  const char *here[g->size];
  for (int64_t at = 0; at < nbytes; at += BLOCK * item) {
    const int64_t some = least(BLOCK * item, nbytes - at);
    for (int64_t r = 0; r < g->size; r++) here[r] = from[r] + at;
    reductions[dtype](how, g->size, here, some / item, out + at);
    if (told) copy(told + at, out + at, some, nbytes);
  }
}

/* -- collectives: what a step sends and receives, and how many steps there are ------------------- */

static int64_t pieces(int64_t nbytes, int64_t piece) {
  return nbytes <= piece ? 1 : (nbytes + piece - 1) / piece;
}

static int64_t bytes_of(const Call *c) { return c->header.count * c->item_bytes; }

static int64_t share(const Group *g) { /* of a slot, for each rank; no more than caches hold well */
  return least(PIECE, SLOT / g->size / 64 * 64);
}

/* The part of an all_reduce that a rank adds up, and where piece k of it lies. */
static int64_t part_begin(const Group *g, const Call *c, int64_t r) {
  return c->header.count * r / g->size * c->item_bytes;
}

static int64_t piece_of_part(const Group *g, const Call *c, int64_t r, int64_t k, int64_t *nbytes) {
  const int64_t begin = part_begin(g, c, r) + k * share(g);
  *nbytes = least(share(g), part_begin(g, c, r + 1) - begin);
  return begin;
}

static int is_small(const Group *g, const Call *c) {
  return c->header.kind == ALL_REDUCE && bytes_of(c) <= g->small_bytes;
}

/* Tells the others' parts of piece k; adds up the own part of the piece before, and tells that. */
static void tell_all_reduce(Group *g, Call *c) {
  const int64_t k = c->step, own = g->rank;
  int64_t nbytes;
  if (k > 0) {
    const char *from[g->size];
    const int64_t begin = piece_of_part(g, c, own, k - 1, &nbytes);
    g->phase--;
    for (int64_t r = 0; r < g->size; r++)
      from[r] = r == own ? c->source + begin : slot(g, r) + own * share(g);
    g->phase++;
    if (nbytes > 0) {
      reduce_all(g, c, from, nbytes, c->out + begin, slot(g, own) + own * share(g));
      atomic_fetch_add_explicit(&g->sent_bytes, nbytes * (g->size - 1), memory_order_relaxed);
    }
  }
  for (int64_t r = 0; r < g->size; r++) {
    const int64_t begin = piece_of_part(g, c, r, k, &nbytes);
    if (r != own) tell(g, slot(g, own) + r * share(g), c->source + begin, nbytes, 1);
  }
}

static void hear_all_reduce(Group *g, Call *c) {
  for (int64_t r = 0; r < g->size; r++) {
    int64_t nbytes;
    if (c->step == 0 || r == g->rank) continue;
    const int64_t begin = piece_of_part(g, c, r, c->step - 1, &nbytes);
    if (nbytes > 0) copy(c->out + begin, slot(g, r) + r * share(g), nbytes, nbytes);
  }
}

static void tell_whole(Group *g, Call *c) {
  const int64_t begin = c->step * SLOT, nbytes = least(SLOT, bytes_of(c) - begin);
  if (c->header.kind != BROADCAST || c->header.argument == g->rank)
    tell(g, slot(g, g->rank), c->source + begin, nbytes, g->size - 1);
}

static void hear_whole(Group *g, Call *c) {
  const int64_t begin = c->step * SLOT, nbytes = least(SLOT, bytes_of(c) - begin);
  if (nbytes <= 0) return;
  const char *from[g->size];
  for (int64_t r = 0; r < g->size; r++) from[r] = r == g->rank ? c->source + begin : slot(g, r);
  if (c->header.kind == ALL_REDUCE) {
    reduce_all(g, c, from, nbytes, c->out + begin, NULL);
  } else if (c->header.kind == ALL_GATHER) {
    for (int64_t r = 0; r < g->size; r++)
      if (c->out + r * bytes_of(c) + begin != from[r])
        copy(c->out + r * bytes_of(c) + begin, from[r], nbytes, nbytes);
  } else if (c->header.argument != g->rank) {
    copy(c->out + begin, from[c->header.argument], nbytes, nbytes);
  }
}

/* Of all_to_all and reduce_scatter: a part for each rank. */
static void tell_parts(Group *g, Call *c) {
  const int64_t part = bytes_of(c) / g->size, begin = c->step * share(g);
  const int64_t nbytes = least(share(g), part - begin);
  for (int64_t r = 0; r < g->size; r++)
    if (r != g->rank)
      tell(g, slot(g, g->rank) + r * share(g), c->source + r * part + begin, nbytes, 1);
}

static void hear_parts(Group *g, Call *c) {
  const int64_t part = bytes_of(c) / g->size, begin = c->step * share(g), own = g->rank;
  const int64_t nbytes = least(share(g), part - begin);
  if (nbytes <= 0) return;
  const char *from[g->size];
  for (int64_t r = 0; r < g->size; r++)
    from[r] = r == own ? c->source + own * part + begin : slot(g, r) + own * share(g);
  if (c->header.kind == REDUCE_SCATTER) {
    reduce_all(g, c, from, nbytes, c->out + begin, NULL);
    return;
  }
  for (int64_t r = 0; r < g->size; r++)
    if (c->out + r * part + begin != from[r]) copy(c->out + r * part + begin, from[r], nbytes, nbytes);
}

typedef void (*Half)(Group *, Call *);

static int64_t steps_of(const Group *g, const Call *c, Half *told, Half *heard) {
  const int64_t kind = c->header.kind;
  const int whole = kind == ALL_GATHER || kind == BROADCAST || kind == BARRIER || is_small(g, c);
  *told = whole ? tell_whole : kind == ALL_REDUCE ? tell_all_reduce : tell_parts;
  *heard = whole ? hear_whole : kind == ALL_REDUCE ? hear_all_reduce : hear_parts;
  if (whole) return pieces(bytes_of(c), SLOT);
  if (kind == ALL_REDUCE) /* of the longest part */
    return pieces((c->header.count + g->size - 1) / g->size * c->item_bytes, share(g)) + 1;
  return pieces(bytes_of(c) / g->size, share(g));
}

/* NumPy arrays begin with their count, their type, and where their data lie. */
static char *data_of(void **array) { return array ? array[2] : NULL; }

/* Goes on with a call, to its end if that comes soon; where `waiting` is given, without waiting, and
   no further once somebody waits for the call. */
static int go_on(Group *g, Call *c, _Atomic int32_t *waiting) {
  Half told, heard;
  const int64_t steps = steps_of(g, c, &told, &heard);
  while (c->step < steps) {
    if (!c->told) {
      told(g, c);
      publish(g);
      c->told = 1;
    }
    int code = DONE;
    if (!waiting) code = wait_until(g, c, all_have_told);
    else if (!all_have_told(g, c)) code = UNDER_WAY;
    if (c->step == 0 && is_different(g, c)) return DIFFERENT;
    if (code != DONE) return code;
    heard(g, c);
    g->phase++;
    c->told = 0;
    c->step++;
    if (waiting && atomic_load(waiting) && c->step < steps) return UNDER_WAY;
  }
  return DONE;
}

/* Which ranks the group waits for, as 1 in `missing`; the header of each one's last call. */
void gh_look(Group *g, int64_t *missing, Header *last) {
  for (int64_t r = 0; r < g->size; r++) {
    const Header *both = rank_of(g, r)->headers;
    missing[r] = !has_told(g, r);
    last[r] = both[both[1].number > both[0].number];
  }
}

/* -- messages ------------------------------------------------------------------------------------ */

static Channel *channel_of(Group *g, const Call *c, int sends) {
  return (Channel *)(sends ? channel(g, g->rank, c->peer) : channel(g, c->peer, g->rank));
}

static int may_send(Group *g, Call *c) {
  Channel *to = channel_of(g, c, 1);
  return atomic_load(&to->written) - atomic_load(&to->read) < 2;
}

static int may_receive(Group *g, Call *c) {
  Channel *from = channel_of(g, c, 0);
  return atomic_load(&from->written) != atomic_load(&from->read);
}

/* Begins a message: a call of `gh_send` or `gh_receive`. */
void gh_message(Call *c, int64_t dtype, int64_t tag, int64_t count, int64_t digest,
                int64_t item_bytes, void **array, int64_t peer) {
  const Header header = {0, SEND, dtype, tag, count, digest};
  *c = (Call){header, data_of(array), data_of(array), item_bytes, 0, 0, 0, 0};
  c->peer = peer;
}

static void send_piece(Group *g, Call *c) {
  Channel *to = channel_of(g, c, 1);
  const uint64_t place = atomic_load(&to->written) & 1;
  const int64_t nbytes = least(PIECE, bytes_of(c) - c->at);
  to->headers[place] = c->header;
  tell(g, (char *)(to + 1) + place * PIECE, c->source + c->at, nbytes, 1);
  atomic_fetch_add(&to->written, 1);
  ring(rank_of(g, c->peer));
  c->at += nbytes;
  c->step++;
}

/* The next piece from the peer must belong to the call; if not, `header` says what it is. */
static int receive_piece(Group *g, Call *c, Header *header) {
  Channel *from = channel_of(g, c, 0);
  const uint64_t place = atomic_load(&from->read) & 1;
  const int64_t nbytes = least(PIECE, bytes_of(c) - c->at);
  *header = from->headers[place];
  if (memcmp(header, &c->header, sizeof(Header))) return DIFFERENT;
  if (nbytes > 0) copy(c->out + c->at, (char *)(from + 1) + place * PIECE, nbytes, nbytes);
  atomic_fetch_add(&from->read, 1);
  ring(rank_of(g, c->peer));
  c->at += nbytes;
  c->step++;
  return c->at == bytes_of(c) ? DONE : UNDER_WAY;
}

int gh_send(Group *g, Call *c) {
  while (c->step == 0 || c->at < bytes_of(c)) {
    const int code = wait_until(g, c, may_send);
    if (code != DONE) return code;
    send_piece(g, c);
  }
  return DONE;
}

int gh_receive(Group *g, Call *c, Header *header) {
  for (;;) {
    int code = wait_until(g, c, may_receive);
    if (code == DONE && (code = receive_piece(g, c, header)) == UNDER_WAY) continue;
    return code;
  }
}
