// tests/threads/evict_threads.c -- 16 threads on one session: most run it at
// mixed shapes, some have kernels compiled, one changes the capacity of the
// cache at random, so that kernels are evicted while they run. In deterministic
// mode every run gives the bits that a run alone gave, whichever kernels it
// had. For TSan, and for scripts/soak.
//
// Usage: test_evict_threads MODEL SECONDS SHAPE...  (one float32 input)
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "shapes.h"

#define THREADS 16
#define SETTLERS 2
#define MAX_SHAPES 8

typedef struct shared {
  limber_session *session;
  shape shapes[MAX_SHAPES];
  int n_shapes;
  double end;
  atomic_int runs, wrong;
} shared;

typedef struct job {
  shared *s;
  unsigned seed;
} job;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void pause_ns(long ns) {
  nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
}

static void *run_all(void *user) {
  job *j = user;
  while (now() < j->s->end) {
    const shape *s = &j->s->shapes[rand_r(&j->seed) % j->s->n_shapes];
    limber_tensor out;
    int good = run(j->s->session, &s->in, &out) && out.bytes == s->out.bytes &&
               memcmp(out.data, s->out.data, out.bytes) == 0;
    limber_tensor_free(&out);
    if (!good) atomic_fetch_add(&j->s->wrong, 1);
    atomic_fetch_add(&j->s->runs, 1);
    pause_ns(rand_r(&j->seed) % 30000000);  // the compiler comes after us
  }
  return NULL;
}

static void *settle_all(void *user) {
  job *j = user;
  while (now() < j->s->end) {
    limber_status st = limber_session_settle(j->s->session, 60);
    pause_ns(1000000);
    if (!st || st == LIMBER_CANCELLED) continue;
    fprintf(stderr, "settle: %s\n", limber_last_error());
    atomic_fetch_add(&j->s->wrong, 1);
    return NULL;
  }
  return NULL;
}

static void *change_all(void *user) {
  job *j = user;
  while (now() < j->s->end) {
    static const uint64_t some[] = {0, 8 << 10, 24 << 10, 64 << 10, 64 << 20};
    limber_set_cache_capacity(some[rand_r(&j->seed) % 5]);
    pause_ns(rand_r(&j->seed) % 50000000);
  }
  return NULL;
}

static int run_threads(shared *s) {
  pthread_t threads[THREADS];
  job jobs[THREADS];
  for (int i = 0; i < THREADS; i++) {
    jobs[i] = (job){s, (unsigned)i + 1};
    void *(*what)(void *) = i == 0          ? change_all
                            : i <= SETTLERS ? settle_all
                                            : run_all;
    if (pthread_create(&threads[i], NULL, what, &jobs[i])) return 0;
  }
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  return 1;
}

static int fail(void) {
  fprintf(stderr, "%s\n", limber_last_error());
  return 2;
}

// The capacity is there again, and so is everything that it bounds.
static int check_end(limber_runtime *r, const char *model, shared *s) {
  limber_cache_stats c = {.size = sizeof c};
  limber_set_cache_capacity(20000);
  if (limber_get_cache_stats(r, &c)) return fail();
  int over = c.bytes > c.capacity || c.retired_bytes != 0;
  printf(
      "%s: %d runs, %d wrong; %llu kernels published, %llu evicted, %llu of "
      "%llu bytes kept, %llu retired\n",
      model, s->runs, s->wrong, (unsigned long long)c.kernels.insertions,
      (unsigned long long)c.kernels.evictions, (unsigned long long)c.bytes,
      (unsigned long long)c.capacity, (unsigned long long)c.retired_bytes);
  return s->wrong != 0 || over || !s->runs || !c.kernels.evictions;
}

int main(int argc, char **argv) {
  limber_runtime_options options = LIMBER_RUNTIME_OPTIONS_INIT;
  limber_session_options how = LIMBER_SESSION_OPTIONS_INIT;
  limber_runtime *runtime = NULL;
  shared s = {.n_shapes = argc - 3 < MAX_SHAPES ? argc - 3 : MAX_SHAPES};
  options.threads = 3;
  how.deterministic = 1;
  if (s.n_shapes < 1 || limber_runtime_create(&options, &runtime) ||
      limber_session_open(runtime, argv[1], &how, &s.session))
    return fail();
  for (int i = 0; i < s.n_shapes; i++)
    if (!parse(argv[3 + i], &s.shapes[i].in) ||
        !run(s.session, &s.shapes[i].in, &s.shapes[i].out))
      return 1;
  s.end = now() + atof(argv[2]);
  if (!run_threads(&s)) return 1;
  int bad = check_end(runtime, argv[1], &s);
  for (int i = 0; i < s.n_shapes; i++) {
    free(s.shapes[i].in.data);
    limber_tensor_free(&s.shapes[i].out);
  }
  limber_session_close(s.session);
  limber_runtime_destroy(runtime);
  return bad;
}
