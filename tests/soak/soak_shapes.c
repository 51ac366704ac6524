// tests/soak/soak_shapes.c -- Many shapes under memory budgets: plans, kernels
// and code stay within their capacity, the process does not grow, and there are
// few kernels.
//
//   soak_shapes MODEL SIGNATURES EVERY CAPACITY OBJECTS SEED
//
// Plans random signatures of a model with inputs of (batch, seq), runs one out
// of EVERY, creates primitives of random sizes for some of them if OBJECTS is
// 0, and compiles kernels from time to time with a capacity of CAPACITY bytes.
// Checks at the end:
//   - Compiled kernels were always within the capacity, as was executable
//   memory
//     except for the unused part of the last mapping.
//   - The process has grown by at most 2 MB since half time, measured after
//   small
//     runs, which release the memory of larger ones.
//   - The store has at most OBJECTS kernels, none of them added in the second
//     half; OBJECTS 0: not checked.
//   - After an input that is 100 times larger and the number of small runs that
//     limber.h states, the process is as large as before.
// Prints one line of figures.
#include <limber/limber.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#define GROWTH (2 << 20)  // bytes
#define MAPPED (1 << 20)  // code memory that may be mapped but unused
#define SETTLES 20
#define SETTLE 120.0  // seconds
#define BATCH 64
#define SEQ 512
#define PRIMITIVE 20  // signatures per primitive
#define TRIM 129      // runs after which memory of a larger one is released

typedef struct soak {
  const char *model;
  long signatures, every, objects;
  uint64_t capacity, seed;
  limber_runtime *runtime;
  limber_session *session;

  size_t half, end, before, after, most;  // bytes
  long half_objects, end_objects;
} soak;

static void die(const char *what) {
  fprintf(stderr, "soak: shapes: %s: %s\n", what, limber_last_error());
  exit(1);
}

static uint64_t draw(soak *s, uint64_t n) {
  s->seed = s->seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
  return (s->seed >> 33) % n;
}

// -- memory ------------------------------------------------------------------

// Private bytes of the process, resident or swapped. Pages of files are not
// counted: they depend on the memory that the whole machine needs.
static size_t resident(void) {
  char line[128];
  unsigned long kb, sum = 0;
  FILE *f = fopen("/proc/self/status", "r");
  if (!f) die("/proc/self/status");
  while (fgets(line, sizeof line, f))
    if (sscanf(line, "RssAnon: %lu", &kb) == 1 ||
        sscanf(line, "RssShmem: %lu", &kb) == 1 ||
        sscanf(line, "VmSwap: %lu", &kb) == 1)
      sum += kb;
  fclose(f);
  return sum << 10;
}

// Mapped bytes of compiled code.
static size_t executable(void) {
  char line[512];
  size_t sum = 0;
  FILE *f = fopen("/proc/self/maps", "r");
  if (!f) die("/proc/self/maps");
  while (fgets(line, sizeof line, f)) {
    unsigned long begin, end;
    if (!strstr(line, "limber-code") || !strstr(line, " r-x")) continue;
    if (sscanf(line, "%lx-%lx", &begin, &end) == 2) sum += end - begin;
  }
  fclose(f);
  return sum;
}

static long objects(void) {
  limber_store *store;
  limber_store_info info = {.size = sizeof info};
  if (limber_store_open(NULL, &store) || limber_store_stats(store, &info))
    die("store");
  limber_store_close(store);
  return (long)info.entries;
}

// -- shapes ------------------------------------------------------------------

// The caller allocates memory of different sizes in the same heap.
static void take(soak *s, int64_t batch, int64_t seq, bool runs) {
  const limber_value_info *infos;
  limber_tensor in[4] = {0}, out = {0};
  size_t n = limber_session_inputs(s->session, &infos);
  int64_t *zeros = calloc((size_t)(batch * seq), sizeof *zeros);
  for (size_t i = 0; i < n && i < 4; i++)
    in[i] = (limber_tensor){
        .dtype = LIMBER_I64, .rank = 2, .dims = {batch, seq}, .data = zeros};
  limber_status st = runs ? limber_session_run(s->session, in, n, &out, 1, NULL)
                          : limber_session_plan(s->session, in, n, NULL);
  if (st) die("shape");
  limber_tensor_free(&out);
  free(zeros);
}

// Creates, executes and destroys a matmul primitive.
static void take_primitive(soak *s, int64_t m, int64_t k, int64_t n) {
  float *x = calloc((size_t)(m * k + k * n), sizeof *x);
  limber_primitive_desc d = {.size = sizeof d, .kind = LIMBER_MATMUL};
  limber_primitive *p = NULL;
  limber_tensor in[] = {
      {.dtype = LIMBER_F32, .rank = 2, .dims = {m, k}, .data = x},
      {.dtype = LIMBER_F32, .rank = 2, .dims = {k, n}, .data = x}};
  limber_tensor out = {0};
  for (int i = 0; i < 2; i++) {
    d.in[i] = (limber_operand){.dtype = LIMBER_F32, .rank = 2};
    memcpy(d.in[i].dims, in[i].dims, sizeof d.in[i].dims);
  }
  if (!x || limber_primitive_create(s->runtime, &d, NULL, &p) ||
      limber_primitive_execute(p, in, 2, &out, 1, NULL))
    die("primitive");
  limber_tensor_free(&out);
  limber_primitive_destroy(p);
  free(x);
}

static int64_t up_to(soak *s, uint64_t most) {
  return 1 + (int64_t)draw(s, most);
}

static void check_bytes(soak *s) {
  limber_cache_stats c = {.size = sizeof c};
  if (limber_get_cache_stats(s->runtime, &c)) die("statistics");
  if (c.bytes > c.capacity) die("the cache exceeds its capacity");
  size_t now = executable();
  if (now > s->most) s->most = now;
}

static void settle(soak *s) {
  if (limber_session_settle(s->session, SETTLE)) die("settle");
}

static size_t resident_after_small_runs(soak *s) {
  for (int i = 0; i < TRIM; i++) take(s, 2, 32, true);
  return resident();
}

static void take_all(soak *s) {
  for (long i = 0; i < s->signatures; i++) {
    bool runs = i % s->every == 0;
    int64_t batch = up_to(s, runs ? 4 : BATCH), seq = up_to(s, runs ? 64 : SEQ);
    take(s, batch, seq, runs);
    if (!s->objects && i % PRIMITIVE == 0)
      take_primitive(s, batch, seq, up_to(s, SEQ));
    if (i % (s->signatures / SETTLES) == 0) settle(s);
    if (i % 100 == 0) check_bytes(s);
    if (i != s->signatures / 2) continue;
    settle(s);
    s->half = resident_after_small_runs(s);
    s->half_objects = objects();
  }
  settle(s);
  s->end = resident_after_small_runs(s);
  s->end_objects = objects();
}

// 64 elements, then 100 times as many, then 64 again.
static void take_large(soak *s) {
  s->before = resident_after_small_runs(s);
  take(s, 16, 400, true);
  s->after = resident_after_small_runs(s);
}

static int check_result(const soak *s) {
  int bad = 0;
  if (s->most > s->capacity + MAPPED) bad = puts("executable memory grows");
  if (s->end > s->half + GROWTH) bad = puts("the process grows");
  if (s->after > s->before + GROWTH) bad = puts("a large run leaves memory");
  if (s->objects && s->end_objects > s->objects)
    bad = puts("more kernels than OBJECTS");
  if (s->objects && s->end_objects > s->half_objects)
    bad = puts("the second half adds kernels");
  return bad != 0;
}

int main(int argc, char **argv) {
  limber_runtime_options options = LIMBER_RUNTIME_OPTIONS_INIT;
  if (argc != 7) {
    fprintf(stderr,
            "usage: soak_shapes MODEL SIGNATURES EVERY CAPACITY "
            "OBJECTS SEED\n");
    return 2;
  }
  soak s = {.model = argv[1],
            .signatures = atol(argv[2]),
            .every = atol(argv[3]),
            .capacity = strtoull(argv[4], NULL, 10),
            .objects = atol(argv[5]),
            .seed = strtoull(argv[6], NULL, 10)};
  options.cache_capacity = s.capacity;
  // The kernel may merge small pages into a huge page, which would look like
  // growth.
  prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
  if (limber_runtime_create(&options, &s.runtime) ||
      limber_session_open(s.runtime, s.model, NULL, &s.session))
    die(s.model);
  take_all(&s);
  take_large(&s);
  printf(
      "soak: shapes: %ld signatures: %zu KB at half time, %zu at the end; %ld "
      "kernels in the store at half time, %ld at the end; at most %zu KB "
      "executable; %zu KB before a large run, %zu after it\n",
      s.signatures, s.half >> 10, s.end >> 10, s.half_objects, s.end_objects,
      s.most >> 10, s.before >> 10, s.after >> 10);
  limber_session_close(s.session);
  limber_runtime_destroy(s.runtime);
  return check_result(&s);
}
