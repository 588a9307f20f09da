/* Collectives in their order, of which several may be under way; after collectives.c, in one file.

   A caller that waits for a call works on it, and on those before it. While nobody waits, calls go on
   beside other work: small ones when another is started or has ended, as far as they can at that
   moment; large ones by a thread, which lets go of them after the piece at hand when somebody waits.
   Once the world has failed nothing is begun, and who raises the error has all calls forgotten. */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

enum { LATER = 2 };        /* of a step of a Program: the host continues with it */
enum { LARGE = 1 << 16 };  /* bytes that take longer to copy than a thread takes to wake up */
enum { TRIES = 1000, PAUSE_NS = 50000 };

typedef struct {
  Group *group;
  _Atomic(struct Started *) first;
  struct Started *last;
  pthread_mutex_t linking, working; /* held to change the list, and while data move */
  _Atomic int32_t waiting;          /* how many wait for a call */
  pthread_cond_t rung;              /* for the thread: `bells` are more, or `is_ended` is set */
  int64_t bells;
  int has_thread, is_ended;
  pid_t owner;
  pthread_t thread;
} Queue;

/* A call, from its start to its end; Python has the same structure. */
typedef struct Started {
  Call call;
  Queue *queue;
  struct Started *next;
  char *source, *out;
  int64_t kind, dtype, argument, count, digest, item_bytes;
  int64_t begin_ns, end_ns;
  _Atomic int64_t is_done;
} Started;

static void put(Started *s) {
  Queue *q = s->queue;
  s->next = NULL;
  s->begin_ns = 0;
  atomic_store(&s->is_done, 0);
  if (atomic_load(q->group->failed)) return;
  pthread_mutex_lock(&q->linking);
  if (!atomic_load(&q->first)) atomic_store(&q->first, s);
  else if (q->last != s) q->last->next = s; /* else Python left it by an interrupt */
  q->last = s;
  pthread_mutex_unlock(&q->linking);
}

static void take_first(Queue *q) {
  pthread_mutex_lock(&q->linking);
  Started *s = atomic_load(&q->first);
  atomic_store(&q->first, s->next);
  s->end_ns = now_ns();
  atomic_store(&s->is_done, 1);
  pthread_mutex_unlock(&q->linking);
}

static int is_large(const Started *s) { return s->count * s->item_bytes > LARGE; }

static int begin(Group *g, Started *s) {
  if (atomic_load(g->failed)) return FAILED;
  s->begin_ns = now_ns();
  const Header header = {++g->number, s->kind, s->dtype, s->argument, s->count, s->digest};
  s->call = (Call){header, s->source, s->out, s->item_bytes, 0, 0, 0, 0};
  rank_of(g, g->rank)->headers[s->call.header.number & 1] = s->call.header;
  return DONE;
}

/* Works on the calls in their order, until this one is done; all of them if it is NULL. */
static int work(Queue *q, const Started *until, _Atomic int32_t *waiting) {
  for (Started *s; (s = atomic_load(&q->first));) {
    int code = s->begin_ns ? DONE : begin(q->group, s);
    if (code == DONE) code = go_on(q->group, &s->call, waiting);
    if (code != DONE) return code;
    take_first(q);
    if (s == until) break;
  }
  return DONE;
}

/* -- the thread ---------------------------------------------------------------------------------- */

static void sleep_until_told(Queue *q) {
  Rank *own = rank_of(q->group, q->group->rank);
  atomic_fetch_add(&own->sleepers, 1);
  const uint32_t heard = atomic_load(&own->bell);
  const int may_go_on = !has_told(q->group, q->group->rank) || all_have_told(q->group, NULL);
  if (!may_go_on && !atomic_load(&q->waiting)) sleep_until_rung(&own->bell, heard, SLEEP_NS);
  atomic_fetch_sub(&own->sleepers, 1);
}

/* The bells so far, once they are more than those heard; -1 at the end. */
static int64_t next_bell(Queue *q, int64_t heard) {
  pthread_mutex_lock(&q->linking);
  while (q->bells == heard && !q->is_ended) pthread_cond_wait(&q->rung, &q->linking);
  const int64_t bells = q->is_ended ? -1 : q->bells;
  pthread_mutex_unlock(&q->linking);
  return bells;
}

static void *serve(void *given) {
  Queue *q = given;
  for (int64_t heard = 0; (heard = next_bell(q, heard)) >= 0;) {
    int code = UNDER_WAY;
    while (code == UNDER_WAY && !atomic_load(&q->waiting) && !pthread_mutex_trylock(&q->working)) {
      code = work(q, NULL, &q->waiting);
      pthread_mutex_unlock(&q->working);
      if (code == UNDER_WAY) sleep_until_told(q);
    }
  }
  return NULL;
}

static void begin_thread(Queue *q) { /* signals are for the others */
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  q->has_thread = pthread_create(&q->thread, NULL, serve, q) == 0;
  pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* Tells the thread that there is a large call. */
static void ring_thread(Queue *q) {
  pthread_mutex_lock(&q->linking);
  const Started *s = atomic_load(&q->first);
  if (s && is_large(s) && !q->is_ended) {
    if (!q->has_thread) begin_thread(q);
    q->bells++;
    pthread_cond_signal(&q->rung);
  }
  pthread_mutex_unlock(&q->linking);
}

static void go_on_beside(Queue *q) {
  if (!atomic_load(&q->first)) return;
  if (pthread_mutex_trylock(&q->working) == 0) {
    for (Started *s; (s = atomic_load(&q->first)) && !is_large(s);)
      if (work(q, s, &q->waiting) != DONE) break;
    pthread_mutex_unlock(&q->working);
  }
  if (atomic_load(&q->first)) ring_thread(q);
}

/* -- what Python and Programs call ----------------------------------------------------------------- */

Queue *gh_queue(Group *g) {
  Queue *q = calloc(1, sizeof(Queue));
  if (!q) return NULL;
  q->group = g;
  q->owner = getpid();
  pthread_mutex_init(&q->linking, NULL);
  pthread_mutex_init(&q->working, NULL);
  pthread_cond_init(&q->rung, NULL);
  return q;
}

/* Ends the thread; a process that was forked has none. */
void gh_end(Queue *q) {
  pthread_mutex_lock(&q->linking);
  q->is_ended = 1;
  pthread_cond_signal(&q->rung);
  pthread_mutex_unlock(&q->linking);
  if (q->has_thread && q->owner == getpid()) pthread_join(q->thread, NULL);
  q->has_thread = 0;
}

Started *gh_first(Queue *q) { return atomic_load(&q->first); }

/* Forgets all calls: their memory is touched no longer. */
void gh_forget(Queue *q) {
  pthread_mutex_lock(&q->working);
  atomic_store(&q->first, NULL);
  pthread_mutex_unlock(&q->working);
}

/* The thread has the lock for as long as a piece takes, another caller perhaps for long. */
static int lock_soon(Queue *q) {
  for (int i = 0; i < TRIES; i++) {
    if (pthread_mutex_trylock(&q->working) == 0) return 1;
    pause_shortly();
  }
  const struct timespec some = {0, PAUSE_NS};
  for (const int64_t end = now_ns() + SLEEP_NS; now_ns() < end; nanosleep(&some, NULL))
    if (pthread_mutex_trylock(&q->working) == 0) return 1;
  return 0;
}

/* Waits for the end of a call, for a while. */
int gh_wait(Started *s) {
  Queue *q = s->queue;
  int code = atomic_load(&s->is_done) ? DONE : UNDER_WAY;
  if (code != DONE && atomic_load(q->group->failed)) return FAILED;
  if (code != DONE) {
    atomic_fetch_add(&q->waiting, 1);
    if (lock_soon(q)) {
      code = atomic_load(&s->is_done) ? DONE : work(q, s, NULL);
      pthread_mutex_unlock(&q->working);
    }
    atomic_fetch_sub(&q->waiting, 1);
  }
  if (code == DONE) go_on_beside(q);
  return code;
}

/* A collective of two arrays, which may be one. */
int gh_call(Started *s, int64_t kind, int64_t dtype, int64_t argument, int64_t count,
            int64_t digest, int64_t item_bytes, void **source, void **out) {
  s->kind = kind, s->dtype = dtype, s->argument = argument;
  s->count = count, s->digest = digest, s->item_bytes = item_bytes;
  s->source = data_of(source), s->out = data_of(out);
  put(s);
  return gh_wait(s);
}

/* Steps of Programs, whose arguments are where the operand and the result lie. */
static void put_step(Started *s, void **a) {
  s->source = a[0], s->out = a[1];
  if (s->kind == BROADCAST && s->source != s->out) {
    memcpy(s->out, s->source, (size_t)(s->count * s->item_bytes));
    s->source = s->out;
  }
  put(s);
}

int gh_start_step(void *extra, void **a, int32_t count) {
  (void)count;
  put_step(extra, a);
  go_on_beside(((Started *)extra)->queue);
  return 0;
}

int gh_wait_step(void *extra, void **a, int32_t count) {
  (void)a, (void)count;
  return gh_wait(extra) == DONE ? 0 : LATER;
}

int gh_whole_step(void *extra, void **a, int32_t count) {
  put_step(extra, a);
  return gh_wait_step(extra, a, count);
}
