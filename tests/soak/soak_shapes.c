// tests/soak/soak_shapes.c -- any number of shapes under the budgets: plans,
// kernels and code stay within their bytes, the process does not grow, and
// kernels are few.
//
//   soak_shapes MODEL SIGNATURES EVERY CAPACITY OBJECTS SEED
//
// Plans random signatures of a model with inputs of (batch, seq), runs one of
// EVERY, creates a primitive of random sizes beside some unless OBJECTS are
// counted, and has kernels compiled now and then under CAPACITY bytes. In the
// end:
//   - what is compiled was within the capacity all the time, as is executable
//     memory, but for what the last mapping has left
//   - the process is larger than at half time by 2 MB at most, both times
//     after small runs: what larger ones took is given back then
//   - the store has at most OBJECTS kernels, none of the second half; 0: as
//     many as there are
//   - after an input 100 times as large, and as many small runs as limber.h
//     says, the process is as large as before
// Prints one line of figures.
#include <limber/limber.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#define GROWTH (2 << 20)  // bytes
#define MAPPED (1 << 20)  // of code memory, beyond what is in use
#define SETTLES 20
#define SETTLE 120.0  // seconds
#define BATCH 64
#define SEQ 512
#define PRIMITIVE 20  // one such for that many signatures
#define TRIM 129      // runs after which memory of a larger one is given back

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

// -- what the system says ----------------------------------------------------

// Bytes of its own, wherever they are. Pages of files come and go as the whole
// machine needs memory.
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

// Bytes of code that was compiled, as mapped.
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

// The caller has memory of its own, of other sizes each time, in the same heap.
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

// A product of any sizes, made, executed and let go.
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
  if (c.bytes > c.capacity) die("more is kept than the capacity");
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

static int judge(const soak *s) {
  int bad = 0;
  if (s->most > s->capacity + MAPPED) bad = puts("executable memory grows");
  if (s->end > s->half + GROWTH) bad = puts("the process grows");
  if (s->after > s->before + GROWTH) bad = puts("a large run leaves memory");
  if (s->objects && s->end_objects > s->objects) bad = puts("many kernels");
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
  // The kernel may make a huge page of small ones at any time, which is growth.
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
  return judge(&s);
}
