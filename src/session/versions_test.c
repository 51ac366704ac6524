// session/versions_test.c -- versions of a program: runs keep theirs, plans are
// separate, memory is freed, weights are packed once. Runs under TSan in
// scripts/test.
#include "session/versions.h"

#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include "base/undertsan.h"
#include "device/cpu/device.h"
#include "graph/text_test.h"
#include "session/run.h"

#define THREADS 8
#define SWAPS 10000
#define EARLY 100   // swaps after which memory is measured for the first time
#define MAX_ROWS 6  // of x

// Two matmuls, a loop over a third, and a data-dependent stage.
static const char model[] =
    "in x float32[n,8]\n"
    "const w float32[8,20] 1 -2 0 1 1 -1 2 0 0 1 -1 1 0 2 -2 1 1 0 1 -1 2 1\n"
    "const u float32[20,8] 1 0 -1 1 2 0 -2 1 1 -1 0 0 1 1 0 -1 2 0 1\n"
    "const k float32[8,8] 1 0 1 0 0 1 1 -1 0 1 0 1 1 0\n"
    "p = MatMul(x, w)\n"
    "y = Relu(p)\n"
    "q = MatMul(y, u)\n"
    "r = Relu(q)\n"
    "l = Loop(3, _, r, k) {captures=1}\n"
    "body(i, c, a, b)\n"
    "d = MatMul(a, b)\n"
    "e = Relu(d)\n"
    "gives c e\n"
    "z = NonZero(y)\n"
    "f = Cast(z) {to=1}\n"
    "g = Neg(f)\n"
    "h = Abs(g)\n"
    "out y l h\n";
#define OUTPUTS 3

// A batch of it can be split: it has values between its steps.
static const char batch[] =
    "in x float32[n,8]\n"
    "const w float32[8,20] 1 -2 0 1 1 -1 2 0 0 1 -1 1 0 2 -2 1 1 0 1 -1 2 1\n"
    "const u float32[20,8] 1 0 -1 1 2 0 -2 1 1 -1 0 0 1 1 0 -1 2 0 1\n"
    "p = MatMul(x, w)\n"
    "y = Relu(p)\n"
    "q = MatMul(y, u)\n"
    "r = Relu(q)\n"
    "s = Neg(r)\n"
    "t = Abs(x)\n"
    "out r s t\n";

typedef struct bed {
  lb_graph *g;
  lb_cpu_device cpu;
  lb_slots slots;
  lb_pool *pool;
  lb_session *s;
  uint32_t *all;  // ids of all values
} bed;

// The version that the next allocation of a run makes current, or NULL.
static _Atomic(lb_version *) swap_in;
static lb_session *swapped;

static void *swap_and_allocate(void *user, size_t size, size_t align) {
  (void)user;
  lb_version *v = atomic_exchange(&swap_in, NULL);
  if (v) lb_session_swap(swapped, v);
  return aligned_alloc(align, (size + align - 1) / align * align);
}

static void give_back(void *user, void *p) {
  (void)user;
  free(p);
}

static const lb_alloc meddling = {.alloc = swap_and_allocate,
                                  .free = give_back};

static void open_bed(bed *b, const char *source, size_t l2_bytes) {
  *b = (bed){.g = graph_of(source)};
  lb_cpu_device_init(&b->cpu, NULL, false, NULL);
  must(lb_slots_init(&b->slots, 8, &b->cpu.base));
  must(lb_pool_new(2, &b->pool));
  must(lb_session_new(b->g,
                      &(lb_session_options){.pool = b->pool,
                                            .slots = &b->slots,
                                            .alloc = &meddling,
                                            .l2_bytes = l2_bytes},
                      &b->s));
  b->all = malloc(b->g->n_values * sizeof *b->all);
  assert_non_null(b->all);
  for (uint32_t i = 0; i < b->g->n_values; i++) b->all[i] = i;
}

static void close_bed(bed *b) {
  lb_session_free(b->s);
  lb_pool_free(b->pool);
  lb_slots_fini(&b->slots);
  lb_graph_free(b->g);
  free(b->all);
}

// With every node unfused, or fused as in the session's first version.
static lb_version *build(bed *b, bool alone) {
  lb_partition_options o = {.barriers = b->all,
                            .n_barriers = alone ? b->g->n_values : 0};
  lb_version *v;
  must(lb_session_build(b->s, &o, &v));
  return v;
}

static lb_session_stats stats_of(const bed *b) {
  lb_session_stats stats;
  lb_session_stats_get(b->s, &stats);
  return stats;
}

static lb_tensor rows_of(int64_t n, float *x) {
  for (int64_t i = 0; i < n * 8; i++) x[i] = (float)(i * 7 % 5) - 2;
  lb_tensor t = {.dtype = LB_F32, .rank = 2, .dims = {n, 8}, .data = x};
  lb_tensor_dense(&t);
  return t;
}

static lb_status run(lb_session *s, int64_t rows, lb_output *out,
                     const lb_run_how *how) {
  float x[MAX_ROWS * 8];
  lb_tensor in = rows_of(rows, x);
  for (int i = 0; i < OUTPUTS; i++) out[i] = (lb_output){.wanted = true};
  return lb_session_run_with(s, &in, out, how);
}

static void run_once(bed *b) {
  lb_output out[OUTPUTS];
  must(run(b->s, 3, out, &(lb_run_how){0}));
  for (int i = 0; i < OUTPUTS; i++) lb_output_free(b->s, &out[i]);
}

// -- kernels -----------------------------------------------------------------

static atomic_int calls, split_calls;  // of these, without Relu
static atomic_bool slow;               // so that other threads get some work

// Offset of element [i, c]: in panels of 16 columns, or of 8 columns
// K2-interleaved.
static int64_t panel_offset(int64_t i, int64_t c, int64_t panel, bool pairs) {
  if (pairs) return c / 8 * panel + i / 2 * 16 + c % 8 * 2 + i % 2;
  return c / 16 * panel + i * 16 + c % 16;
}

// Sums are exact in any order.
static void multiply(const uint64_t *args, bool pairs, bool relu) {
  float *out = (float *)(uintptr_t)args[0];
  const float *a = (const float *)(uintptr_t)args[1];
  const float *b = (const float *)(uintptr_t)args[2];
  int64_t rows = (int64_t)args[3], cols = (int64_t)args[4];
  int64_t k = (int64_t)args[5];
  const int64_t *strides = (const int64_t *)args + 6;
  atomic_fetch_add(&calls, 1);
  atomic_fetch_add(&split_calls, !relu);
  if (atomic_load(&slow)) usleep(300);
  for (int64_t r = 0; r < rows; r++)
    for (int64_t c = 0; c < cols; c++) {
      float sum = 0;
      for (int64_t i = 0; i < k; i++)
        sum += a[r * strides[2] + i * strides[3]] *
               b[panel_offset(i, c, strides[4], pairs)];
      out[r * strides[0] + c * strides[1]] = relu && sum < 0 ? 0 : sum;
    }
}

static void plain(const uint64_t *a) { multiply(a, false, false); }
static void plain_relu(const uint64_t *a) { multiply(a, false, true); }
static void paired(const uint64_t *a) { multiply(a, true, false); }
static void paired_relu(const uint64_t *a) { multiply(a, true, true); }

static const lb_exec *kernel_of(const lb_spec *s) {
  static const lb_exec kernels[2][2] = {
      {{.entry = (uintptr_t)plain}, {.entry = (uintptr_t)plain_relu}},
      {{.entry = (uintptr_t)paired}, {.entry = (uintptr_t)paired_relu}}};
  bool relu = s->n_nodes > s->n_in + 1;  // more than inputs and the sum
  bool pairs = s->in[1].layout == LB_LAYOUT_PANEL_K2;
  if (s->form != LB_FORM_MATMUL) return NULL;
  assert_true(pairs || s->in[1].layout == LB_LAYOUT_PANEL);
  return &kernels[pairs][relu];
}

// From now on, plans of both versions at all shapes have their kernels.
static void give_kernels(bed *b) {
  for (int alone = 0; alone < 2; alone++) {
    lb_version *v = build(b, alone);
    lb_session_swap(b->s, v);
    lb_session_release_version(b->s, v);
    for (int64_t n = 1; n <= MAX_ROWS; n++) {
      lb_output out[OUTPUTS];
      must(run(b->s, n, out, &(lb_run_how){0}));
      for (int i = 0; i < OUTPUTS; i++) lb_output_free(b->s, &out[i]);
    }
  }
  for (size_t i = 0; lb_slots_at(&b->slots, i); i++) {
    lb_slot *slot = lb_slots_at(&b->slots, i);
    const lb_exec *kernel = kernel_of(&slot->key.spec);
    if (kernel) lb_slot_publish(slot, kernel, LB_TIER_REUSABLE);
  }
}

// -- one thread --------------------------------------------------------------

static void nodes_are_not_fused_where_requested(void **state) {
  (void)state;
  bed b;
  open_bed(&b, model, 0);
  lb_version *fused = build(&b, false), *alone = build(&b, true);
  const lb_partitioning *one = fused->program->parts;
  const lb_partitioning *other = alone->program->parts;
  assert_true(one->n_parts < other->n_parts);
  for (uint32_t i = 0; i < other->n_parts; i++)
    assert_int_equal(other->parts[i]->n_nodes, 1);
  lb_session_release_version(b.s, fused);
  lb_session_release_version(b.s, alone);
  close_bed(&b);
}

static void versions_have_separate_plans(void **state) {
  (void)state;
  bed b;
  open_bed(&b, model, 0);
  lb_version *first = lb_version_take(b.s), *second = build(&b, true);
  assert_int_equal(lb_version_number(first), 1);
  assert_int_equal(lb_version_number(second), 2);
  run_once(&b);
  lb_session_stats before = stats_of(&b);
  assert_true(before.plans > 0);
  lb_session_swap(b.s, second);
  assert_int_equal(stats_of(&b).version, 2);
  run_once(&b);
  assert_int_equal(stats_of(&b).plans_built, 2 * before.plans_built);
  // Both are in use, and are kept.
  lb_session_swap(b.s, first);
  run_once(&b);
  lb_session_swap(b.s, second);
  run_once(&b);
  assert_int_equal(stats_of(&b).plans_built, 2 * before.plans_built);
  assert_int_equal(stats_of(&b).plans, 2 * before.plans);
  // Without users it is freed, with its plans.
  assert_int_equal(stats_of(&b).programs, 2);
  lb_session_release_version(b.s, first);
  assert_int_equal(stats_of(&b).programs, 1);
  assert_int_equal(stats_of(&b).plans, before.plans);
  assert_int_equal(stats_of(&b).plans_evicted, 0);
  lb_session_release_version(b.s, second);
  assert_int_equal(stats_of(&b).programs, 1);  // it is current
  close_bed(&b);
}

static void weights_are_packed_once(void **state) {
  (void)state;
  bed b;
  open_bed(&b, model, 0);
  lb_session_stats before = stats_of(&b);
  assert_int_equal(before.packings, 3);
  lb_version *first = lb_version_take(b.s), *second = build(&b, true);
  assert_int_equal(stats_of(&b).packings, before.packings);
  assert_int_equal(stats_of(&b).packed_bytes, before.packed_bytes);
  for (uint32_t i = 0; i < b.g->n_nodes; i++) {
    const lb_partition *a = first->program->parts->of_node[i];
    const lb_partition *c = second->program->parts->of_node[i];
    if (a && c && a->packed && c->packed)
      assert_ptr_equal(a->packed, c->packed);
  }
  lb_session_release_version(b.s, first);
  lb_session_release_version(b.s, second);
  close_bed(&b);
}

// Swaps after the first step that is reported.
typedef struct meddler {
  bed *b;
  lb_version *next;
  uint64_t version;
  int steps, wrong;
  size_t programs;  // during the run
} meddler;

static lb_status swap_once(void *user, const lb_step_event *e) {
  meddler *m = user;
  if (m->steps++ == 0) m->version = e->version;
  m->wrong += e->version != m->version;
  if (m->next) {
    lb_session_swap(m->b->s, m->next);
    lb_session_release_version(m->b->s, m->next);
    m->next = NULL;
  }
  m->programs = stats_of(m->b).programs;
  return LB_OK;
}

static void a_run_ends_with_the_version_it_began_with(void **state) {
  (void)state;
  bed b;
  open_bed(&b, model, 0);
  meddler m = {.b = &b, .next = build(&b, true)};
  lb_watcher w = {.step = swap_once, .user = &m};
  for (uint64_t version = 1; version < 3; version++) {
    lb_output out[OUTPUTS];
    m.steps = 0;
    must(run(b.s, 3, out, &(lb_run_how){.watcher = &w}));
    for (int i = 0; i < OUTPUTS; i++) lb_output_free(b.s, &out[i]);
    assert_int_equal(m.wrong, 0);
    assert_int_equal(m.version, version);
    assert_int_equal(m.programs, version == 1 ? 2 : 1);
    assert_int_equal(stats_of(&b).programs, 1);
    assert_true(m.steps > 6);  // two matmuls, a loop, the last stage
  }
  close_bed(&b);
}

// Memory for results is allocated after the run has its version, and before
// other threads start.
static void microbatches_use_the_version_of_their_run(void **state) {
  (void)state;
  bed b;
  open_bed(&b, batch, 1);
  give_kernels(&b);
  lb_version *fused = build(&b, false), *alone = build(&b, true);
  swapped = b.s;
  atomic_store(&slow, true);
  for (int i = 0; i < 50; i++) {
    lb_output out[OUTPUTS];
    lb_session_swap(b.s, fused);
    atomic_store(&split_calls, 0);
    atomic_store(&swap_in, alone);
    must(run(b.s, MAX_ROWS, out, &(lb_run_how){0}));
    assert_null(atomic_load(&swap_in));
    assert_int_equal(atomic_load(&split_calls), 0);
    for (int k = 0; k < OUTPUTS; k++) lb_output_free(b.s, &out[k]);
  }
  atomic_store(&slow, false);
  lb_session_release_version(b.s, fused);
  lb_session_release_version(b.s, alone);
  close_bed(&b);
}

static void idle_contexts_release_old_versions(void **state) {
  (void)state;
  bed b;
  open_bed(&b, model, 0);
  run_once(&b);
  lb_version *v = build(&b, true);
  assert_int_equal(atomic_load(&b.s->versions.usage.count), 2);
  lb_session_swap(b.s, v);
  lb_session_release_version(b.s, v);
  assert_int_equal(atomic_load(&b.s->versions.usage.count), 1);
  assert_int_equal(lb_session_plan_bytes(b.s), 0);
  close_bed(&b);
}

static void versions_are_freed_after_failed_runs(void **state) {
  (void)state;
  bed b;
  open_bed(&b, model, 0);
  for (int i = 0; i < 10; i++) {
    atomic_int cancelled = 1;
    lb_run_limits limits = {.cancelled = &cancelled};
    lb_output out[OUTPUTS];
    lb_version *v = build(&b, i % 2);
    lb_session_swap(b.s, v);
    lb_session_release_version(b.s, v);
    lb_status st = run(b.s, 2, out, &(lb_run_how){.limits = &limits});
    assert_int_equal(lb_status_code(st), LB_CANCELLED);
    lb_status_drop(st);
    assert_int_equal(stats_of(&b).programs, 1);
  }
  close_bed(&b);
}

// -- many threads ------------------------------------------------------------

typedef struct expected_results {
  lb_output of[MAX_ROWS + 1][OUTPUTS];
} expected_results;

static bool is_same(const lb_output *a, const lb_output *b) {
  for (int i = 0; i < OUTPUTS; i++) {
    const lb_tensor *x = &a[i].tensor, *y = &b[i].tensor;
    size_t dims = (size_t)x->rank * sizeof *x->dims;
    if (x->rank != y->rank || memcmp(x->dims, y->dims, dims) != 0 ||
        memcmp(x->data, y->data, lb_tensor_bytes(x)) != 0)
      return false;
  }
  return true;
}

typedef struct clocks {
  atomic_int swaps, runs;  // so far
  atomic_bool stop;
} clocks;

typedef struct runner {
  lb_session *s;
  const expected_results *want;
  unsigned seed;
  uint64_t version;  // of the steps of this run; 0: none reported yet
  int bad;
  bool watched;
  struct clocks *clocks;
} runner;

static lb_status same_version(void *user, const lb_step_event *e) {
  runner *r = user;
  if (!r->version) r->version = e->version;
  r->bad += r->version != e->version;
  return LB_OK;
}

// A few runs for each swap, during it or before; then other threads may go on.
static void *keep_running(void *user) {
  runner *r = user;
  clocks *at = r->clocks;
  lb_watcher w = {.step = same_version, .user = r};
  for (int n_runs = 0; !atomic_load(&at->stop);) {
    if (n_runs > 2 * atomic_load(&at->swaps) + 2) {
      sched_yield();
      continue;
    }
    n_runs++;
    int64_t n = 1 + rand_r(&r->seed) % MAX_ROWS;
    lb_output out[OUTPUTS];
    r->version = 0;
    lb_status st =
        run(r->s, n, out, &(lb_run_how){.watcher = r->watched ? &w : NULL});
    if (lb_failed(st) || !is_same(out, r->want->of[n])) r->bad++;
    lb_status_drop(st);
    for (int i = 0; i < OUTPUTS; i++) lb_output_free(r->s, &out[i]);
    atomic_fetch_add(&at->runs, 1);
  }
  return NULL;
}

// Without the memory that the C library keeps for later allocations: one heap
// per thread.
static size_t resident_bytes(void) {
  unsigned long all = 0, resident = 0;
#ifdef __GLIBC__
  malloc_trim(0);
#endif
  FILE *f = fopen("/proc/self/statm", "r");
  if (f && fscanf(f, "%lu %lu", &all, &resident) != 2) resident = 0;
  if (f) fclose(f);
  return resident * (size_t)sysconf(_SC_PAGESIZE);
}

typedef struct memory {
  lb_session_stats stats;
  size_t resident;
} memory;

static void swap_often(bed *b, int swaps, clocks *at, memory *early) {
  for (int i = 0; i < swaps; i++) {
    int before = atomic_load(&at->runs);
    lb_version *v = build(b, i % 2);
    lb_session_swap(b->s, v);
    lb_session_release_version(b->s, v);
    atomic_fetch_add(&at->swaps, 1);
    while (atomic_load(&at->runs) == before) sched_yield();
    if (i == EARLY) *early = (memory){stats_of(b), resident_bytes()};
  }
}

// Results of the reference kernels, with all nodes unfused and nothing packed.
static void compute_expected(const char *source, expected_results *a,
                             lb_graph **g, lb_session **s) {
  *g = graph_of(source);
  must(lb_session_new(*g, &(lb_session_options){0}, s));
  for (int64_t n = 1; n <= MAX_ROWS; n++)
    must(run(*s, n, a->of[n], &(lb_run_how){0}));
}

static void check_memory(bed *b, int swaps, const memory *early) {
  lb_session_stats end = stats_of(b);
  assert_int_equal(end.programs, 1);
  assert_true(end.version > (uint64_t)swaps);
  assert_int_equal(end.packings, early->stats.packings);
  assert_int_equal(end.packed_bytes, early->stats.packed_bytes);
  assert_true(end.plan_bytes <= early->stats.plan_bytes + (1 << 20));
  assert_true(end.own_bytes <= early->stats.own_bytes + (1 << 20));
#if !defined(UNDER_TSAN) && !defined(UNDER_ASAN)
  assert_true(resident_bytes() <= early->resident + (2 << 20));
#endif
}

static void storm(const char *source, size_t l2_bytes, int swaps) {
  expected_results want;
  lb_graph *g;
  lb_session *host;
  bed b;
  memory early;
  clocks at = {0};
  pthread_t threads[THREADS];
  runner runners[THREADS];
  int bad = 0;
  compute_expected(source, &want, &g, &host);
  open_bed(&b, source, l2_bytes);
  give_kernels(&b);
  atomic_store(&calls, 0);
  for (unsigned i = 0; i < THREADS; i++) {
    runners[i] = (runner){.s = b.s,
                          .want = &want,
                          .seed = i + 1,
                          .watched = i % 2,
                          .clocks = &at};
    assert_int_equal(
        pthread_create(&threads[i], NULL, keep_running, &runners[i]), 0);
  }
  swap_often(&b, swaps, &at, &early);
  atomic_store(&at.stop, true);
  for (int i = 0; i < THREADS; i++) {
    pthread_join(threads[i], NULL);
    bad += runners[i].bad;
  }
  assert_int_equal(bad, 0);
  assert_true(atomic_load(&calls) > swaps);
  check_memory(&b, swaps, &early);
  close_bed(&b);
  for (int64_t n = 1; n <= MAX_ROWS; n++)
    for (int i = 0; i < OUTPUTS; i++) lb_output_free(host, &want.of[n][i]);
  lb_session_free(host);
  lb_graph_free(g);
}

static void eight_threads_run_while_programs_are_swapped(void **state) {
  (void)state;
  storm(model, 0, SWAPS);
}

static void eight_threads_split_batches_while_programs_are_swapped(
    void **state) {
  (void)state;
  storm(batch, 1, SWAPS / 10);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(nodes_are_not_fused_where_requested),
      cmocka_unit_test(versions_have_separate_plans),
      cmocka_unit_test(weights_are_packed_once),
      cmocka_unit_test(a_run_ends_with_the_version_it_began_with),
      cmocka_unit_test(microbatches_use_the_version_of_their_run),
      cmocka_unit_test(idle_contexts_release_old_versions),
      cmocka_unit_test(versions_are_freed_after_failed_runs),
      cmocka_unit_test(eight_threads_run_while_programs_are_swapped),
      cmocka_unit_test(eight_threads_split_batches_while_programs_are_swapped),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
