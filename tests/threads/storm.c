// tests/threads/storm.c -- Everything concurrently: 8 threads run a model at
// mixed shapes, some of their runs are cancelled or time out, sessions and
// runtimes are opened and closed, one thread waits for kernels, one changes the
// capacity of the cache at random so that kernels are evicted while they run,
// and one kills all compilers repeatedly, with pauses in which kernels can be
// compiled. In deterministic mode every run that completes gives the same bits
// as a run without other threads, whichever kernels it used. For sanitizers,
// and for scripts/soak.
//
// Usage: test_storm MODEL SECONDS KILL_MS SEED SHAPE...  (one float32 input)
//   KILL_MS: interval at which compilers are killed; 0: never
#include <dirent.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include "shapes.h"

#define RUNNERS 8
#define OPENERS 2
#define SHARED 2  // sessions that all runners use
#define MAX_SHAPES 8
#define STORM 2.0  // seconds with kills, then seconds without
#define PEACE 3.0

typedef struct storm {
  const char *model;
  int kill_ms;
  double end;
  limber_runtime *runtime;
  limber_session *sessions[SHARED];
  pthread_rwlock_t
      locks[SHARED];  // read: the session is in use; write: replaced
  limber_cancel *cancel;
  shape shapes[MAX_SHAPES];
  int n_shapes;
  atomic_int runs, cancelled, opened, kills, wrong;
} storm;

typedef struct job {
  storm *s;
  unsigned seed;
} job;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void nap(unsigned us) {
  nanosleep(&(struct timespec){us / 1000000, us % 1000000 * 1000}, NULL);
}

// Uniform in 0 .. n - 1.
static unsigned draw(job *j, unsigned n) {
  return (unsigned)rand_r(&j->seed) % n;
}

static bool goes_on(const job *j) { return now() < j->s->end; }

static void complain(storm *s, const char *what) {
  if (atomic_fetch_add(&s->wrong, 1) < 5)
    fprintf(stderr, "storm: %s: %s\n", what, limber_last_error());
}

// -- sessions ----------------------------------------------------------------

static limber_session *open_session(storm *s, limber_runtime *r) {
  limber_session_options how = LIMBER_SESSION_OPTIONS_INIT;
  limber_session *session = NULL;
  how.deterministic = 1;
  if (limber_session_open(r, s->model, &how, &session)) complain(s, "open");
  return session;
}

static limber_runtime *open_runtime(storm *s) {
  limber_runtime_options options = LIMBER_RUNTIME_OPTIONS_INIT;
  limber_runtime *r = NULL;
  options.threads = 3;
  options.compile_threshold = 1;
  options.log_level = LIMBER_LOG_ERROR;  // killed workers are expected
  if (limber_runtime_create(&options, &r)) complain(s, "runtime");
  return r;
}

// A killed compiler is an error of settle only.
static void settle(job *j, limber_session *session) {
  double seconds = 0.01 * (1 + draw(j, 100));
  limber_status st = limber_session_settle(session, seconds);
  if (st && st != LIMBER_CANCELLED && !(st == LIMBER_IO && j->s->kill_ms))
    complain(j->s, "settle");
}

// Some runs can be cancelled, and some have less time than they need.
static void run_one(job *j, limber_session *session) {
  storm *s = j->s;
  const shape *given = &s->shapes[draw(j, (unsigned)s->n_shapes)];
  limber_run_options o = LIMBER_RUN_OPTIONS_INIT;
  limber_tensor out = {0};
  unsigned what = draw(j, 4);
  if (what == 0) o.cancel = s->cancel;
  if (what == 1) o.timeout = 1e-4 * (1 + draw(j, 100));
  limber_status st = limber_session_run(session, &given->in, 1, &out, 1, &o);
  atomic_fetch_add(&s->runs, 1);
  if (st == LIMBER_CANCELLED && what < 2) {
    atomic_fetch_add(&s->cancelled, 1);
    return;
  }
  if (st)
    complain(s, "run");
  else if (out.bytes != given->out.bytes ||
           memcmp(out.data, given->out.data, out.bytes) != 0)
    complain(s, "the output differs from that of a single run");
  limber_tensor_free(&out);
}

// -- the threads -------------------------------------------------------------

static void *run_all(void *user) {
  job *j = user;
  while (goes_on(j)) {
    unsigned i = draw(j, SHARED);
    pthread_rwlock_rdlock(&j->s->locks[i]);
    run_one(j, j->s->sessions[i]);
    pthread_rwlock_unlock(&j->s->locks[i]);
    nap(draw(j, 20000));  // the compiler has lower priority
  }
  return NULL;
}

// Opens sessions of new runtimes and of this runtime; the latter replace shared
// ones.
static void *open_all(void *user) {
  job *j = user;
  storm *s = j->s;
  while (goes_on(j)) {
    limber_runtime *own = draw(j, 2) ? open_runtime(s) : NULL;
    limber_session *session = open_session(s, own ? own : s->runtime);
    for (unsigned i = draw(j, 6); session && i > 0; i--) run_one(j, session);
    if (session && own) settle(j, session);
    if (session && !own) {
      unsigned i = draw(j, SHARED);
      pthread_rwlock_wrlock(&s->locks[i]);
      limber_session *old = s->sessions[i];
      s->sessions[i] = session;
      pthread_rwlock_unlock(&s->locks[i]);
      session = old;
    }
    limber_session_close(session);
    limber_runtime_destroy(own);
    atomic_fetch_add(&s->opened, 1);
    nap(draw(j, 100000));
  }
  return NULL;
}

static void *settle_all(void *user) {
  job *j = user;
  storm *s = j->s;
  while (goes_on(j)) {
    unsigned i = draw(j, SHARED);
    pthread_rwlock_rdlock(&s->locks[i]);
    settle(j, s->sessions[i]);
    limber_stats stats = {.size = sizeof stats};
    if (limber_session_stats(s->sessions[i], &stats)) complain(s, "stats");
    limber_session_trim(s->sessions[i]);
    pthread_rwlock_unlock(&s->locks[i]);
    nap(draw(j, 100000));
  }
  return NULL;
}

static void *change_all(void *user) {
  job *j = user;
  while (goes_on(j)) {
    static const uint64_t some[] = {0, 8 << 10, 24 << 10, 64 << 10, 64 << 20};
    limber_set_cache_capacity(some[draw(j, 5)]);
    nap(draw(j, 50000));
  }
  return NULL;
}

static void *cancel_all(void *user) {
  job *j = user;
  while (goes_on(j)) {
    limber_cancel_trigger(j->s->cancel);
    nap(draw(j, 2000));
    limber_cancel_reset(j->s->cancel);
    nap(draw(j, 20000));
  }
  return NULL;
}

// Kills the children of thread `tid` of this program: all of them are
// compilers.
static void kill_children(storm *s, long tid) {
  char path[64];
  long pid;
  snprintf(path, sizeof path, "/proc/self/task/%ld/children", tid);
  FILE *f = fopen(path, "r");
  if (!f) return;
  while (fscanf(f, "%ld", &pid) == 1)
    if (kill((pid_t)pid, SIGKILL) == 0) atomic_fetch_add(&s->kills, 1);
  fclose(f);
}

static void *kill_all(void *user) {
  job *j = user;
  for (double began = now(); j->s->kill_ms && goes_on(j);) {
    bool peace = fmod(now() - began, STORM + PEACE) > STORM;
    DIR *threads = peace ? NULL : opendir("/proc/self/task");
    for (struct dirent *e; threads && (e = readdir(threads));)
      kill_children(j->s, atol(e->d_name));
    if (threads) closedir(threads);
    nap((unsigned)j->s->kill_ms * 1000);
  }
  return NULL;
}

// -- all of them -------------------------------------------------------------

static int run_threads(storm *s, unsigned seed) {
  static void *(*const others[])(void *) = {settle_all, change_all, cancel_all,
                                            kill_all};
  enum { N = RUNNERS + OPENERS + sizeof others / sizeof *others };
  pthread_t threads[N];
  job jobs[N];
  for (unsigned i = 0; i < N; i++) {
    jobs[i] = (job){s, seed + i};
    void *(*what)(void *) = i < RUNNERS ? run_all
                            : i < RUNNERS + OPENERS
                                ? open_all
                                : others[i - RUNNERS - OPENERS];
    if (pthread_create(&threads[i], NULL, what, &jobs[i])) return 0;
  }
  for (int i = 0; i < N; i++) pthread_join(threads[i], NULL);
  return 1;
}

// Without other threads all kernels are compiled. There may be a backoff after
// the last compiler that was killed.
static void settle_down(storm *s, unsigned seed) {
  job j = {s, seed};
  limber_status st = LIMBER_OK;
  limber_set_cache_capacity(64 << 20);
  for (int i = 0; i < 20 * s->n_shapes; i++) run_one(&j, s->sessions[0]);
  for (int i = 0; i < 100; i++) {
    st = limber_session_settle(s->sessions[0], 100);
    if (st != LIMBER_IO) break;
    nap(200000);
  }
  if (st) complain(s, "settle at the end");
}

// The cache is within its capacity again, and nothing is retired.
static int check_end(storm *s) {
  limber_cache_stats c = {.size = sizeof c};
  limber_set_cache_capacity(20000);
  if (limber_get_cache_stats(s->runtime, &c)) complain(s, "statistics");
  int over = c.bytes > c.capacity || c.retired_bytes != 0;
  int idle = !s->runs || !s->opened || !s->cancelled || !c.kernels.evictions ||
             (s->kill_ms && !s->kills);
  printf(
      "storm: %d runs, %d of them ended early, %d wrong; %d sessions opened, "
      "%d workers killed; %llu kernels published, %llu evicted, %llu of %llu "
      "bytes kept, %llu retired\n",
      s->runs, s->cancelled, s->wrong, s->opened, s->kills,
      (unsigned long long)c.kernels.insertions,
      (unsigned long long)c.kernels.evictions, (unsigned long long)c.bytes,
      (unsigned long long)c.capacity, (unsigned long long)c.retired_bytes);
  return s->wrong != 0 || over || idle;
}

static int set_up(storm *s, char **shapes) {
  s->runtime = open_runtime(s);
  if (!s->runtime || limber_cancel_create(&s->cancel)) return 0;
  for (int i = 0; i < SHARED; i++) {
    pthread_rwlock_init(&s->locks[i], NULL);
    if (!(s->sessions[i] = open_session(s, s->runtime))) return 0;
  }
  for (int i = 0; i < s->n_shapes; i++)
    if (!parse(shapes[i], &s->shapes[i].in) ||
        !run(s->sessions[0], &s->shapes[i].in, &s->shapes[i].out))
      return 0;
  return 1;
}

static void tear_down(storm *s) {
  for (int i = 0; i < s->n_shapes; i++) {
    free(s->shapes[i].in.data);
    limber_tensor_free(&s->shapes[i].out);
  }
  for (int i = 0; i < SHARED; i++) limber_session_close(s->sessions[i]);
  limber_cancel_destroy(s->cancel);
  limber_runtime_destroy(s->runtime);
}

int main(int argc, char **argv) {
  static storm s;
  if (argc < 6) return 2;
  s.model = argv[1];
  s.kill_ms = atoi(argv[3]);
  s.n_shapes = argc - 5 < MAX_SHAPES ? argc - 5 : MAX_SHAPES;
  if (!set_up(&s, argv + 5)) return 2;
  s.end = now() + atof(argv[2]);
  if (!run_threads(&s, (unsigned)atol(argv[4]))) return 2;
  settle_down(&s, (unsigned)atol(argv[4]));
  int bad = check_end(&s);
  tear_down(&s);
  return bad;
}
