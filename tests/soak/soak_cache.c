// tests/soak/soak_cache.c -- Many processes create primitives on one store, and
// some of them are killed at random moments.
//
//   soak_cache SECONDS PROCESSES KILL_MS SEED
//
// The store is that of the environment. Each process draws a number, which
// determines an operator and its post-ops; creates that primitive, executes it,
// waits for its kernels up to WAIT, and executes it again. The range of numbers
// grows with time, so that there is always something to compile. About every
// KILL_MS a process is killed and another one started; 0: never.
// Checks at the end:
//   - No call failed, there were no warnings, and every result was exact:
//     operands are small integers. Warnings that an overloaded machine causes
//     are counted separately (`starving`): a compiler got no CPU time for half
//     a minute, or the process that writes to the store for two seconds, or the
//     process that creates its tables for ten.
//   - Kernels were compiled at most as often as there are keys and kills, and
//     iterations of runtimes that could not use the store for that reason.
//   - The store is valid and has all kernels.
// Prints one line, and on failure the arguments that reproduce it.
#include <limber/limber.h>
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MAX_PROCESSES 256
#define FIRST 8         // range of numbers at the beginning
#define PER_SECOND 8.0  // growth of the range per second
#define ROWS 5
#define COLS 19
#define K 7
#define CHAIN 4        // maximum of post-ops
#define ALGS 7         // number of algorithms to draw from
#define ITERATIONS 40  // per runtime
#define WAIT 0.5       // seconds, for kernels

typedef struct shared {  // memory shared by all processes
  atomic_bool stop;
  atomic_uint numbers;  // the range to draw from
  atomic_ulong iterations, compiled, found, failures, wrong, warnings, starving;
} shared;

typedef struct soak {
  shared *all;
  double seconds;
  unsigned processes, kill_ms;
  uint64_t seed;
  unsigned long kills;
  pid_t pids[MAX_PROCESSES];
} soak;

static uint64_t draw(uint64_t *state) {
  *state = *state * UINT64_C(6364136223846793005) + 1442695040888963407u;
  uint64_t x = *state ^ *state >> 33;
  return x * UINT64_C(0xff51afd7ed558ccd) >> 11;
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void nap(uint64_t us) {
  nanosleep(&(struct timespec){.tv_sec = (time_t)(us / 1000000),
                               .tv_nsec = (long)(us % 1000000) * 1000},
            NULL);
}

// -- results -----------------------------------------------------------------

static void fail(shared *all, const char *what) {
  if (atomic_fetch_add(&all->failures, 1) < 3)
    fprintf(stderr, "soak: %d: %s: %s\n", getpid(), what, limber_last_error());
}

static void count_line(void *user, int level, const char *line) {
  shared *all = user;
  if (level > LIMBER_LOG_WARN) return;
  if (strstr(line, "did not respond in time") ||
      strstr(line, "is locked by another process") ||
      strstr(line, "another process has been creating")) {
    atomic_fetch_add(&all->starving, 1);
    return;
  }
  if (atomic_fetch_add(&all->warnings, 1) < 3)
    fprintf(stderr, "soak: %d: %s\n", getpid(), line);
}

static void count_event(void *user, const limber_event *e) {
  shared *all = user;
  if (!strcmp(e->name, "kernel_compiled")) atomic_fetch_add(&all->compiled, 1);
  if (!strcmp(e->name, "kernel_found")) atomic_fetch_add(&all->found, 1);
}

// -- primitives by number ----------------------------------------------------

static const int algs[ALGS] = {
    LIMBER_ALG_RELU,   LIMBER_ALG_ABS,  LIMBER_ALG_NEG,  LIMBER_ALG_CLIP,
    LIMBER_ALG_LINEAR, LIMBER_ALG_SIGN, LIMBER_ALG_FLOOR};

static float apply(int alg, float x) {
  switch (alg) {
    case LIMBER_ALG_RELU: return x > 0 ? x : 0;
    case LIMBER_ALG_ABS: return fabsf(x);
    case LIMBER_ALG_NEG: return -x;
    case LIMBER_ALG_CLIP: return x < -5 ? -5 : x > 9 ? 9 : x;
    case LIMBER_ALG_LINEAR: return 2 * x + 1;
    case LIMBER_ALG_SIGN: return (float)((x > 0) - (x < 0));
    default: return floorf(x);
  }
}

static float alpha_of(int alg) {
  return alg == LIMBER_ALG_CLIP ? -5 : alg == LIMBER_ALG_LINEAR ? 2 : 0;
}

static float beta_of(int alg) {
  return alg == LIMBER_ALG_CLIP ? 9 : alg == LIMBER_ALG_LINEAR ? 1 : 0;
}

typedef struct subject {
  limber_primitive_desc desc;
  limber_attr *attr;  // owned
  int chain[CHAIN + 1];
  int n;
  float a[ROWS * K], b[K * COLS], want[ROWS * COLS];
} subject;

static void fill(float *x, int n, unsigned by) {
  for (int i = 0; i < n; i++) x[i] = (float)((int)(by * (unsigned)i % 7) - 3);
}

static limber_operand matrix(int64_t rows, int64_t cols) {
  return (limber_operand){.dtype = LIMBER_F32, .rank = 2, .dims = {rows, cols}};
}

static void compute(subject *s, bool is_matmul) {
  for (int i = 0; i < ROWS * COLS; i++) {
    float x = is_matmul ? 0 : s->b[i % (K * COLS)];
    for (int k = 0; is_matmul && k < K; k++)
      x += s->a[i / COLS * K + k] * s->b[k * COLS + i % COLS];
    for (int j = 0; j < s->n; j++) x = apply(s->chain[j], x);
    s->want[i] = x;
  }
}

// A matmul with the chain as its post-ops, or the first operator of the chain
// with the others.
static limber_status make_subject(unsigned number, subject *s) {
  bool is_matmul = number % 2;
  *s = (subject){.desc = {.size = sizeof s->desc}};
  fill(s->a, ROWS * K, 5 + number);
  fill(s->b, K * COLS, 3 + number);
  uint64_t state = number;
  s->n = 1 + (int)(draw(&state) % CHAIN);
  for (int i = 0; i < s->n; i++) s->chain[i] = algs[draw(&state) % ALGS];
  s->desc.kind = is_matmul ? LIMBER_MATMUL : LIMBER_ELTWISE;
  s->desc.in[0] = is_matmul ? matrix(ROWS, K) : matrix(ROWS, COLS);
  if (is_matmul) s->desc.in[1] = matrix(K, COLS);
  if (!is_matmul) {
    s->desc.alg = s->chain[0];
    s->desc.alpha = alpha_of(s->chain[0]);
    s->desc.beta = beta_of(s->chain[0]);
  }
  compute(s, is_matmul);
  limber_status st = limber_attr_create(&s->attr);
  for (int i = is_matmul ? 0 : 1; !st && i < s->n; i++)
    st = limber_attr_append_eltwise(s->attr, s->chain[i], alpha_of(s->chain[i]),
                                    beta_of(s->chain[i]));
  return st;
}

static void execute(shared *all, limber_primitive *p, subject *s) {
  bool is_matmul = s->desc.kind == LIMBER_MATMUL;
  float got[ROWS * COLS] = {0}, x[ROWS * COLS];
  for (int i = 0; i < ROWS * COLS; i++) x[i] = s->b[i % (K * COLS)];
  limber_tensor in[] = {
      {.dtype = LIMBER_F32,
       .rank = 2,
       .dims = {ROWS, is_matmul ? K : COLS},
       .data = is_matmul ? s->a : x},
      {.dtype = LIMBER_F32, .rank = 2, .dims = {K, COLS}, .data = s->b}};
  limber_tensor out = {.data = got, .bytes = sizeof got};
  if (limber_primitive_execute(p, in, is_matmul ? 2 : 1, &out, 1, NULL)) {
    fail(all, "execute");
    return;
  }
  for (int i = 0; i < ROWS * COLS; i++) {
    if (got[i] == s->want[i]) continue;
    if (atomic_fetch_add(&all->wrong, 1) < 3)
      fprintf(stderr, "soak: element %d is %g, expected %g\n", i, got[i],
              s->want[i]);
    return;
  }
}

// -- one process -------------------------------------------------------------

static void run_iteration(shared *all, limber_runtime *r, uint64_t *state) {
  subject s;
  limber_primitive *p = NULL;
  unsigned number = (unsigned)(draw(state) % atomic_load(&all->numbers));
  if (make_subject(number, &s) ||
      limber_primitive_create(r, &s.desc, s.attr, &p)) {
    fail(all, "create");
  } else {
    execute(all, p, &s);
    limber_status st = limber_primitive_wait(p, WAIT);
    if (st && st != LIMBER_CANCELLED) fail(all, "wait");
    execute(all, p, &s);
  }
  limber_primitive_destroy(p);
  limber_attr_destroy(s.attr);
  atomic_fetch_add(&all->iterations, 1);
}

// Creates and destroys runtimes, as processes start and end.
static void child(const soak *k, uint64_t seed) {
  shared *all = k->all;
  limber_runtime_options o = LIMBER_RUNTIME_OPTIONS_INIT;
  uint64_t state = seed;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  o.threads = 1;
  o.log = count_line;
  o.log_user = all;
  o.event = count_event;
  o.event_user = all;
  while (!atomic_load(&all->stop)) {
    limber_runtime *r;
    if (limber_runtime_create(&o, &r)) {
      fail(all, "runtime");
      break;
    }
    for (int i = 0; i < ITERATIONS && !atomic_load(&all->stop); i++)
      run_iteration(all, r, &state);
    limber_runtime_flush(r);
    limber_runtime_destroy(r);
  }
  exit(0);
}

static void start(soak *k, unsigned i) {
  uint64_t seed = draw(&k->seed);
  pid_t pid = fork();
  if (pid == 0) child(k, seed);
  k->pids[i] = pid;
}

// -- all of them -------------------------------------------------------------

static void kill_one(soak *k) {
  unsigned i = (unsigned)(draw(&k->seed) % k->processes);
  kill(k->pids[i], SIGKILL);
  waitpid(k->pids[i], NULL, 0);
  k->kills++;
  start(k, i);
}

static void storm(soak *k) {
  double begin = now(), passed;
  while ((passed = now() - begin) < k->seconds) {
    atomic_store(&k->all->numbers, FIRST + (unsigned)(passed * PER_SECOND));
    nap(k->kill_ms ? draw(&k->seed) % (2000 * k->kill_ms) : 100000);
    if (k->kill_ms) kill_one(k);
  }
}

static unsigned end_all(soak *k) {
  unsigned bad = 0;
  atomic_store(&k->all->stop, true);
  for (unsigned i = 0; i < k->processes; i++) {
    int status = -1;
    waitpid(k->pids[i], &status, 0);
    bad += status != 0;
  }
  return bad;
}

static bool check_store(unsigned long *keys) {
  limber_store *store;
  limber_store_check v = {.size = sizeof v};
  if (limber_store_open(NULL, &store)) return false;
  limber_status st = limber_store_verify(store, &v);
  limber_store_close(store);
  *keys = v.entries;
  if (!st && !v.corrupt && !v.error[0]) return true;
  fprintf(stderr, "soak: store: %lu entries, %lu corrupt; %s%s\n", *keys,
          (unsigned long)v.corrupt, v.error, st ? limber_last_error() : "");
  return false;
}

static int run(soak *k) {
  shared *all = k->all;
  unsigned long keys = 0;
  uint64_t seed = k->seed;
  atomic_store(&all->numbers, FIRST);
  for (unsigned i = 0; i < k->processes; i++) start(k, i);
  storm(k);
  unsigned bad = end_all(k);
  bool good = check_store(&keys);
  unsigned long compiled = atomic_load(&all->compiled);
  good =
      good && !bad && !all->failures && !all->wrong && !all->warnings &&
      compiled <= keys + k->kills + ITERATIONS * atomic_load(&all->starving) &&
      keys > 0 && all->found > 0;
  printf(
      "soak: cache: %u processes, %.0f s: %lu primitives executed, %lu kernels "
      "compiled for %lu keys, %lu found, %lu kills; %lu failures, %lu "
      "warnings, %lu wrong, %u processes failed, %lu starving\n",
      k->processes, k->seconds, atomic_load(&all->iterations), compiled, keys,
      atomic_load(&all->found), k->kills, atomic_load(&all->failures),
      atomic_load(&all->warnings), atomic_load(&all->wrong), bad,
      atomic_load(&all->starving));
  if (!good)
    printf("soak: FAILED; soak_cache %g %u %u %llu\n", k->seconds, k->processes,
           k->kill_ms, (unsigned long long)seed);
  return good ? 0 : 1;
}

int main(int argc, char **argv) {
  if (argc != 5) {
    fprintf(stderr, "usage: soak_cache SECONDS PROCESSES KILL_MS SEED\n");
    return 2;
  }
  soak k = {.seconds = atof(argv[1]),
            .processes = (unsigned)atoi(argv[2]),
            .kill_ms = (unsigned)atoi(argv[3]),
            .seed = strtoull(argv[4], NULL, 10)};
  if (k.processes < 1 || k.processes > MAX_PROCESSES) return 2;
  k.all = mmap(NULL, sizeof *k.all, PROT_READ | PROT_WRITE,
               MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return k.all == MAP_FAILED ? 2 : run(&k);
}
