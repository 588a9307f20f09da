/* The threads of kernels and of oneDNN: what `#pragma omp` calls, for the libraries adopted here.

   A region has `size` parts, which the kernel knows by omp_get_thread_num. Parts are taken from a
   counter, by the thread that began the region and by its workers: a worker that does not run, since
   another process has the core, takes none, and the others do its part. Who waits spins for as long
   as a thread takes to wake up, then sleeps; for less while other processes want the cores. A region
   with barriers has its parts on threads of their own: nobody ends a part before all have begun.

   Each thread that begins regions has workers of its own, which end with it. In a process made by
   fork they are made again. Where `delegate` was called, regions begin in that runtime instead. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <limits.h>
#include <link.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Nanoseconds to spin, and while others want the cores; a moment that is long was given to another
   process, and where two come soon after each other, that is remembered for a while. */
enum { SPIN_NS = 100000, SHORT_NS = 1000, LONG_NS = 400000, SOON_NS = 200000000 };
enum { CROWDED_NS = 500000000 };
enum { MOST = 1 << 12, FRAMES = 16 }; /* threads, and regions in regions that have several parts */

typedef void (*Body)(void *);

typedef struct Team {
  _Alignas(64) _Atomic uint64_t ticket; /* number of the region << 32 | size << 16 | next part */
  Body body;
  void *data;
  int limit;                         /* that most_threads says inside */
  _Alignas(64) _Atomic int left;     /* parts that have not ended */
  _Atomic int is_waited_for;
  _Alignas(64) _Atomic uint32_t bell, sleepers;
  _Alignas(64) _Atomic uint32_t phase, arrived, barrier_sleepers;
  _Atomic int is_ended;
  int workers;
  pthread_t *threads;
} Team;

typedef struct {
  int part, size;
} Frame;

static __thread struct {
  Team *team, *inside; /* that it leads, and in whose region it is */
  int limit;           /* by set_threads; 0: none */
  int depth, active;   /* frames, and whether one of them has several parts */
  Frame frames[FRAMES];
  long next, end, step, chunk, stride, first; /* of the loop that it is in */
} self;

static int default_threads = 1;
static _Atomic int64_t crowded_until, long_before;
static double pauses_per_ns = 0.02;
static pthread_key_t at_end;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* -- the other runtime --------------------------------------------------------------------------- */

static struct {
  void (*parallel)(Body, void *, unsigned, unsigned);
  void (*start)(Body, void *, unsigned);
  void (*end)(void), (*barrier)(void), (*loop_end)(void);
  _Bool (*loop_start)(long, long, long, long, long *, long *), (*loop_next)(long *, long *);
  int (*most)(void), (*size)(void), (*part)(void), (*is_inside)(void);
  void (*set)(int);
} other;
static _Atomic int is_delegated;

static int is_theirs(void) {
  return !self.depth && atomic_load_explicit(&is_delegated, memory_order_acquire);
}

/* -- waiting ------------------------------------------------------------------------------------- */

static int64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void pause_shortly(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  atomic_signal_fence(memory_order_seq_cst);
#endif
}

static void sleep_while(_Atomic uint32_t *word, uint32_t value) {
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void wake(_Atomic uint32_t *word, int count) {
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
}

/* One long moment may be the machine's own. */
static void note_long(int64_t now) {
  const int64_t before = atomic_exchange(&long_before, now);
  if (now - before < SOON_NS) atomic_store(&crowded_until, now + CROWDED_NS);
}

/* Spins until it is done, for a moment. */
#define SPIN_UNTIL(done)                                                                 \
  while (!(done)) {                                                                      \
    const int64_t since = now_ns();                                                      \
    const int ns = since < atomic_load(&crowded_until) ? SHORT_NS : SPIN_NS;             \
    for (int tries = (int)(ns * pauses_per_ns); tries > 0 && !(done); tries--)           \
      pause_shortly();                                                                   \
    const int64_t until = now_ns();                                                      \
    if (until - since > LONG_NS) note_long(until);                                       \
    break;                                                                               \
  }

/* -- regions ------------------------------------------------------------------------------------- */

static int next_of(uint64_t ticket) { return ticket & 0xffff; }
static int size_of(uint64_t ticket) { return ticket >> 16 & 0xffff; }
static int has_part(uint64_t ticket) { return next_of(ticket) < size_of(ticket); }

static void push(int part, int size) {
  if (self.depth < FRAMES) self.frames[self.depth] = (Frame){part, size};
  self.depth++;
}

static Frame innermost(void) {
  return self.depth && self.depth <= FRAMES ? self.frames[self.depth - 1] : (Frame){0, 1};
}

static void pop(void) { self.depth--; }

/* Does parts until all are taken. */
static void do_parts(Team *t) {
  for (uint64_t ticket = atomic_load(&t->ticket); has_part(ticket);) {
    if (!atomic_compare_exchange_weak(&t->ticket, &ticket, ticket + 1)) continue;
    self.limit = t->limit;
    push(next_of(ticket), size_of(ticket));
    t->body(t->data);
    pop();
    if (atomic_fetch_sub(&t->left, 1) == 1 && atomic_load(&t->is_waited_for))
      wake((_Atomic uint32_t *)&t->left, 1);
    ticket = atomic_load(&t->ticket);
  }
}

static void *work(void *of) {
  Team *t = of;
  self.inside = t;
  self.active = 1;
  while (!atomic_load(&t->is_ended)) {
    do_parts(t);
    SPIN_UNTIL(has_part(atomic_load(&t->ticket)));
    const uint32_t heard = atomic_load(&t->bell);
    atomic_fetch_add(&t->sleepers, 1);
    if (!has_part(atomic_load(&t->ticket)) && !atomic_load(&t->is_ended))
      sleep_while(&t->bell, heard);
    atomic_fetch_sub(&t->sleepers, 1);
  }
  return NULL;
}

static void ring(Team *t, int count) {
  atomic_fetch_add(&t->bell, 1);
  wake(&t->bell, count);
}

static void end_team(void *of) {
  Team *t = of;
  atomic_store(&t->is_ended, 1);
  ring(t, INT_MAX);
  for (int i = 0; i < t->workers; i++) pthread_join(t->threads[i], NULL);
  free(t->threads);
  free(t);
}

static void forget_team(void) { /* after a fork: its workers stayed where they were */
  self.team = NULL;
  pthread_setspecific(at_end, NULL);
}

static void begin_pool(void) {
  pthread_key_create(&at_end, end_team);
  pthread_atfork(NULL, NULL, forget_team);
  const int64_t begin = now_ns();
  for (int i = 0; i < 1000; i++) pause_shortly();
  const int64_t ns = now_ns() - begin;
  if (ns > 0 && ns < 1000000) pauses_per_ns = 1000.0 / ns;
}

/* The team of this thread with so many workers, or as many as the system lets it have. */
static Team *team_of(int workers) {
  pthread_once(&once, begin_pool);
  Team *t = self.team;
  if (!t) {
    if (posix_memalign((void **)&t, 64, sizeof *t)) return NULL;
    memset(t, 0, sizeof *t);
    self.team = t;
    pthread_setspecific(at_end, t);
  }
  if (t->workers >= workers) return t;
  pthread_t *threads = realloc(t->threads, workers * sizeof *threads);
  if (!threads) return t;
  t->threads = threads;
  sigset_t all, before; /* signals are for the others */
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  while (t->workers < workers && !pthread_create(t->threads + t->workers, NULL, work, t))
    t->workers++;
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return t;
}

static int most_threads(void) {
  if (is_theirs()) return other.most();
  return self.limit ? self.limit : default_threads;
}

static void set_threads(int count) {
  if (is_theirs()) other.set(count);
  else self.limit = count < 1 ? 1 : count < MOST ? count : MOST;
}

static int own_part(void) {
  if (is_theirs()) return other.part();
  return innermost().part;
}

static int own_size(void) {
  if (is_theirs()) return other.size();
  return innermost().size;
}

static int is_inside(void) { return is_theirs() ? other.is_inside() : self.active; }

/* Begins a region, whose first part is the caller's. A region in another has one part. */
static void begin(Body body, void *data, unsigned asked) {
  int size = asked ? (int)asked : most_threads();
  if (size > MOST) size = MOST;
  const int is_alone = size == 1 || self.active || self.depth >= FRAMES;
  Team *t = is_alone ? NULL : team_of(size - 1);
  if (t && t->workers + 1 < size) size = t->workers + 1;
  if (!t || size == 1) {
    push(0, 1);
    return;
  }
  self.inside = t;
  self.active = 1;
  push(0, size);
  t->body = body;
  t->data = data;
  t->limit = self.limit;
  atomic_store(&t->left, size);
  const uint64_t number = (atomic_load(&t->ticket) >> 32) + 1;
  atomic_store(&t->ticket, number << 32 | (uint64_t)size << 16 | 1);
  const int asleep = atomic_load(&t->sleepers), awake = t->workers - asleep;
  if (asleep && awake < size - 1) ring(t, size - 1 - awake);
}

/* Ends the caller's part, does those that nobody has begun, and waits for the others. */
static void end(void) {
  const Frame own = innermost();
  pop();
  if (own.size == 1) return;
  Team *t = self.team;
  if (atomic_fetch_sub(&t->left, 1) > 1) {
    do_parts(t);
    SPIN_UNTIL(!atomic_load(&t->left));
    if (atomic_load(&t->left)) {
      atomic_store(&t->is_waited_for, 1);
      for (int left; (left = atomic_load(&t->left));)
        sleep_while((_Atomic uint32_t *)&t->left, left);
      atomic_store(&t->is_waited_for, 0);
    }
  }
  self.inside = NULL;
  self.active = 0;
}

static void run_region(Body body, void *data, unsigned size, unsigned how) {
  if (is_theirs()) {
    other.parallel(body, data, size, how);
    return;
  }
  begin(body, data, size);
  body(data);
  end();
}

static void start_region(Body body, void *data, unsigned size) {
  if (is_theirs()) other.start(body, data, size);
  else begin(body, data, size);
}

static void end_region(void) {
  if (is_theirs()) other.end();
  else end();
}

static void meet(void) {
  if (is_theirs()) {
    other.barrier();
    return;
  }
  const uint32_t size = own_size();
  if (size == 1) return;
  Team *t = self.inside;
  const uint32_t phase = atomic_load(&t->phase);
  if (atomic_fetch_add(&t->arrived, 1) + 1 == size) {
    atomic_store(&t->arrived, 0);
    atomic_store(&t->phase, phase + 1);
    if (atomic_load(&t->barrier_sleepers)) wake(&t->phase, INT_MAX);
    return;
  }
  SPIN_UNTIL(atomic_load(&t->phase) != phase);
  if (atomic_load(&t->phase) != phase) return;
  atomic_fetch_add(&t->barrier_sleepers, 1);
  while (atomic_load(&t->phase) == phase) sleep_while(&t->phase, phase);
  atomic_fetch_sub(&t->barrier_sleepers, 1);
}

/* Loops whose shares are fixed: `chunk` steps in turn, or one run of steps for each part. */
static _Bool next_steps(long *from, long *to) {
  if (is_theirs()) return other.loop_next(from, to);
  if (self.next >= self.end) return 0;
  const long last = self.next + self.chunk;
  *from = self.first + self.next * self.step;
  *to = self.first + (last < self.end ? last : self.end) * self.step;
  self.next += self.stride;
  return 1;
}

static _Bool start_loop(long from, long to, long step, long chunk, long *first,
                                    long *last) {
  if (is_theirs()) return other.loop_start(from, to, step, chunk, first, last);
  const long part = own_part(), size = own_size();
  const long count = (to - from + step + (step > 0 ? -1 : 1)) / step;
  self.first = from, self.step = step, self.end = count;
  if (chunk > 0) {
    self.next = part * chunk, self.chunk = chunk, self.stride = size * chunk;
  } else {
    const long each = count / size, more = count % size;
    self.next = part * each + (part < more ? part : more);
    self.chunk = each + (part < more), self.stride = count + 1;
    if (!self.chunk) self.next = count;
  }
  return next_steps(first, last);
}

static void end_loop(void) {
  if (is_theirs()) other.loop_end();
}

/* -- what Python calls --------------------------------------------------------------------------- */

int omp_get_max_threads(void) __attribute__((alias("most_threads")));
void omp_set_num_threads(int count) __attribute__((alias("set_threads")));

void gh_set_threads(int count) { default_threads = count < 1 ? 1 : count; }

/* From now on regions begin in the runtime of this handle. */
int gh_delegate(void *handle) {
  void **functions = (void **)&other;
  static const char *const names[] = {
      "GOMP_parallel",       "GOMP_parallel_start",   "GOMP_parallel_end",
      "GOMP_barrier",        "GOMP_loop_end_nowait",  "GOMP_loop_static_start",
      "GOMP_loop_static_next", "omp_get_max_threads", "omp_get_num_threads",
      "omp_get_thread_num",  "omp_in_parallel",       "omp_set_num_threads"};
  void *found[sizeof names / sizeof *names];
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (!(found[i] = dlsym(handle, names[i]))) return 0;
  memcpy(functions, found, sizeof found);
  atomic_store(&is_delegated, 1);
  return 1;
}

int gh_is_delegated(void) { return atomic_load(&is_delegated); }

/* -- libraries ----------------------------------------------------------------------------------- */

static const struct {
  const char *name;
  void *function;
} OURS[] = {
    {"GOMP_parallel", run_region},
    {"GOMP_parallel_start", start_region},
    {"GOMP_parallel_end", end_region},
    {"GOMP_barrier", meet},
    {"GOMP_loop_static_start", start_loop},
    {"GOMP_loop_static_next", next_steps},
    {"GOMP_loop_end_nowait", end_loop},
    {"omp_get_max_threads", most_threads},
    {"omp_set_num_threads", set_threads},
    {"omp_get_num_threads", own_size},
    {"omp_get_thread_num", own_part},
    {"omp_in_parallel", is_inside},
};

static void *ours(const char *name) {
  for (size_t i = 0; i < sizeof OURS / sizeof *OURS; i++)
    if (!strcmp(name, OURS[i].name)) return OURS[i].function;
  return NULL;
}

static int is_openmp(const char *name) {
  return !strncmp(name, "GOMP_", 5) || !strncmp(name, "omp_", 4) || !strncmp(name, "__kmpc_", 7);
}

typedef struct {
  const char *base; /* where the library lies */
  const ElfW(Sym) *symbols;
  const char *names;
  const ElfW(Rela) *tables[2];
  size_t bytes[2];
} Library;

static const void *placed(const Library *l, ElfW(Addr) at) {
  return at < (ElfW(Addr))l->base ? l->base + at : (const char *)at;
}

static Library library_of(const struct link_map *map) {
  Library l = {.base = (const char *)map->l_addr};
  for (const ElfW(Dyn) *d = map->l_ld; d->d_tag != DT_NULL; d++) {
    if (d->d_tag == DT_SYMTAB) l.symbols = placed(&l, d->d_un.d_ptr);
    if (d->d_tag == DT_STRTAB) l.names = placed(&l, d->d_un.d_ptr);
    if (d->d_tag == DT_RELA) l.tables[0] = placed(&l, d->d_un.d_ptr);
    if (d->d_tag == DT_RELASZ) l.bytes[0] = d->d_un.d_val;
    if (d->d_tag == DT_JMPREL) l.tables[1] = placed(&l, d->d_un.d_ptr);
    if (d->d_tag == DT_PLTRELSZ) l.bytes[1] = d->d_un.d_val;
  }
  return l;
}

/* Unlocks the page of a place: the loader may have locked it when it had put an address there. */
static int unlock(void *place) {
  const uintptr_t page = sysconf(_SC_PAGESIZE), begin = (uintptr_t)place & ~(page - 1);
  return !mprotect((void *)begin, page, PROT_READ | PROT_WRITE);
}

/* Visits the places of a library that hold addresses of OpenMP's functions: unlocks them, or puts ours
   there. 0 if one is not known, or stays locked. */
static int visit(const Library *l, int is_put) {
  for (int k = 0; k < 2; k++) {
    const size_t count = l->tables[k] ? l->bytes[k] / sizeof(ElfW(Rela)) : 0;
    for (const ElfW(Rela) *r = l->tables[k], *last = r + count; r < last; r++) {
      const ElfW(Sym) *symbol = l->symbols + ELF64_R_SYM(r->r_info);
      const char *name = l->names + symbol->st_name;
      if (symbol->st_shndx != SHN_UNDEF || !is_openmp(name)) continue;
      void **place = (void **)(l->base + r->r_offset), *function = ours(name);
      if (is_put) *place = function;
      else if (!function || !unlock(place)) return 0;
    }
  }
  return 1;
}

/* Lets a loaded library call the functions above; 0 if it calls others of OpenMP, too. */
int gh_adopt(void *handle) {
  const Library l = library_of(handle);
  return visit(&l, 0) && visit(&l, 1);
}
