// api/shared_test.c -- tests what the runtimes of a process share, and which of
// them decides what is compiled. The worker is a fake, whose kernels do
// nothing.
#include "api/shared.h"

#include <errno.h>
#include <limber/limber.h>
#include <pthread.h>
#include <sys/wait.h>

#include "api/primitive.h"
#include "base/testdir.h"
#include "onnx/model_test.h"

enum { KINDS = 24 };

static const char *const ops[] = {"Exp", "Neg", "Sqrt", "Tanh", "Abs", "Floor"};

// y = op(op(x)), along n; each `kind` has its own kernel.
static pb model_of(int kind) {
  pb g = {0};
  pb_msg(&g, 1, pb_node(ops[kind % 6], "a", "x", "t"));
  pb_msg(&g, 1, pb_node(ops[(kind / 6 + kind + 1) % 6], "b", "t", "y"));
  pb_str(&g, 2, "chain");
  pb_msg(&g, 11, pb_value("x", T_FLOAT, "n"));
  pb_msg(&g, 12, pb_value("y", T_FLOAT, "n"));
  return pb_model(g, 17);
}

typedef struct runtime {
  limber_runtime *r;
  limber_session *s;
  pb model;
  atomic_int requested, compiled, published, lines;
} runtime;

static void hear(void *user, const limber_event *e) {
  runtime *t = user;
  atomic_fetch_add(&t->requested, !strcmp(e->name, "kernel_requested"));
  atomic_fetch_add(&t->compiled, !strcmp(e->name, "kernel_compiled"));
  atomic_fetch_add(&t->published, !strcmp(e->name, "kernel_published"));
}

static void note_line(void *user, int level, const char *line) {
  runtime *t = user;
  (void)level;
  (void)line;
  atomic_fetch_add(&t->lines, 1);
}

static void ok(limber_status st) {
  if (st) print_error("%s\n", limber_last_error());
  assert_int_equal(st, LIMBER_OK);
}

static limber_status open_runtime(runtime *t, int threads, int compile,
                                  int compile_threshold) {
  limber_runtime_options o = LIMBER_RUNTIME_OPTIONS_INIT;
  *t = (runtime){0};
  o.threads = threads;
  o.compile = compile;
  o.compile_threshold = compile_threshold;
  o.event = hear;
  o.event_user = t;
  o.log = note_line;
  o.log_user = t;
  return limber_runtime_create(&o, &t->r);
}

static limber_status open_model(runtime *t, int kind) {
  limber_session_options o = LIMBER_SESSION_OPTIONS_INIT;
  t->model = model_of(kind);
  return limber_session_open_memory(t->r, t->model.b.data, t->model.b.len, &o,
                                    &t->s);
}

static void open_pair(runtime *t, int kind, int compile,
                      int compile_threshold) {
  ok(open_runtime(t, 1, compile, compile_threshold));
  ok(open_model(t, kind));
}

static void end(runtime *t) {
  limber_session_close(t->s);
  limber_runtime_destroy(t->r);
  lb_strbuf_fini(&t->model.b);
}

static limber_status run(const runtime *t) {
  float x[40] = {1}, y[40];
  limber_tensor in = {.dtype = LIMBER_F32, .rank = 1, .dims = {40}, .data = x};
  limber_tensor out = {.data = y, .bytes = sizeof y};
  return limber_session_run(t->s, &in, 1, &out, 1, NULL);
}

static limber_stats stats_of(const runtime *t) {
  limber_stats s = {.size = sizeof s};
  ok(limber_session_stats(t->s, &s));
  return s;
}

static bool kernels_are_here(const runtime *t) {
  limber_stats s = stats_of(t);
  return s.kernels_requested > 0 && s.kernels_pending == 0;
}

static void wait_for_kernels(const runtime *t) {
  for (int i = 0; i < 20000 && !kernels_are_here(t); i++) usleep(1000);
  assert_true(kernels_are_here(t));
}

// -- what is shared ----------------------------------------------------------

static void process_statistics_are_the_same_for_every_runtime(void **state) {
  (void)state;
  runtime a, b;
  limber_cache_stats x = {.size = sizeof x}, y = {.size = sizeof y};
  char *one, *other;
  open_pair(&a, 0, LIMBER_COMPILE_SETTLE, 0);
  open_pair(&b, 0, LIMBER_COMPILE_SETTLE, 0);
  uint64_t before = stats_of(&a).kernels;
  ok(run(&a));
  ok(run(&b));
  ok(limber_session_settle(a.s, 60));
  uint64_t made = stats_of(&a).kernels - before;
  assert_true(made > 0 && kernels_are_here(&b));
  ok(limber_session_settle(b.s, 60));
  assert_int_equal(stats_of(&b).kernels - before, made);  // once
  assert_int_equal(stats_of(&a).kernels_requested,
                   stats_of(&b).kernels_requested);
  ok(limber_get_cache_stats(a.r, &x));
  ok(limber_get_cache_stats(NULL, &y));
  assert_memory_equal(&x, &y, sizeof x);
  ok(limber_metrics(a.r, &one));
  ok(limber_metrics(b.r, &other));
  assert_string_equal(one, other);
  limber_string_free(one);
  limber_string_free(other);
  ok(limber_explain_miss(a.r, &one));
  ok(limber_explain_miss(b.r, &other));
  assert_string_equal(one, other);
  limber_string_free(one);
  limber_string_free(other);
  end(&a);
  end(&b);
}

static void kernels_outlive_the_runtime_that_requested_them(void **state) {
  (void)state;
  runtime a, b;
  open_pair(&a, 1, LIMBER_COMPILE_SETTLE, 0);
  ok(run(&a));
  ok(limber_session_settle(a.s, 60));
  uint64_t made = stats_of(&a).kernels;
  end(&a);
  open_pair(&b, 1, LIMBER_COMPILE_SETTLE, 0);
  ok(run(&b));
  assert_true(kernels_are_here(&b));
  assert_int_equal(stats_of(&b).kernels, made);
  end(&b);
}

// A runtime gets the events of the kernels that it uses, whichever runtime
// requested them first, and of no others.
static void every_runtime_that_uses_a_kernel_gets_its_events(void **state) {
  (void)state;
  runtime a, b, other;
  open_pair(&a, 2, LIMBER_COMPILE_SETTLE, 0);
  open_pair(&b, 2, LIMBER_COMPILE_SETTLE, 0);
  open_pair(&other, 3, LIMBER_COMPILE_SETTLE, 0);
  ok(run(&a));
  ok(run(&b));
  ok(run(&other));
  ok(limber_session_settle(a.s, 60));
  limber_runtime_flush(a.r);
  limber_runtime_flush(b.r);
  limber_runtime_flush(other.r);
  assert_true(a.requested > 0 && a.compiled > 0);
  assert_int_equal(a.requested, b.requested);
  assert_int_equal(a.compiled, b.compiled);
  assert_int_equal(a.published, a.compiled);
  assert_int_equal(b.published, b.compiled);
  assert_true(other.requested > 0);
  assert_int_equal(other.compiled + other.published, 0);
  end(&a);
  end(&b);
  end(&other);
}

static void primitives_are_shared_by_runtimes(void **state) {
  (void)state;
  limber_primitive_desc d = {.size = sizeof d, .kind = LIMBER_ELTWISE};
  limber_primitive *p, *q;
  runtime a, b;
  float x[7] = {1, -1, 0, 2, 3, 4, -5}, y[7];
  limber_tensor in = {.dtype = LIMBER_F32, .rank = 1, .dims = {7}, .data = x};
  limber_tensor out = {.data = y, .bytes = sizeof y};
  d.alg = LIMBER_ALG_RELU;
  d.in[0] = (limber_operand){.dtype = LIMBER_F32, .rank = 1, .dims = {7}};
  ok(open_runtime(&a, 1, LIMBER_COMPILE_SETTLE, 0));
  ok(open_runtime(&b, 3, LIMBER_COMPILE_SETTLE, 0));
  ok(limber_primitive_create(a.r, &d, NULL, &p));
  ok(limber_primitive_create(b.r, &d, NULL, &q));
  assert_ptr_equal(p->core, q->core);
  limber_primitive_destroy(p);
  limber_runtime_destroy(a.r);
  limber_runtime_flush(b.r);
  assert_true(b.requested > 0);  // although another runtime planned it
  ok(limber_primitive_execute(q, &in, 1, &out, 1, NULL));
  for (int i = 0; i < 7; i++) assert_true(y[i] == (x[i] > 0 ? x[i] : 0));
  limber_primitive_destroy(q);
  limber_runtime_destroy(b.r);
}

static void the_last_capacity_set_counts(void **state) {
  (void)state;
  limber_runtime_options o = LIMBER_RUNTIME_OPTIONS_INIT;
  limber_runtime *a, *b, *c;
  uint64_t first, now;
  ok(limber_get_cache_capacity(&first));
  o.cache_capacity = 3 << 20;
  ok(limber_runtime_create(&o, &a));
  o.cache_capacity = 2 << 20;
  ok(limber_runtime_create(&o, &b));
  o.cache_capacity = 0;
  ok(limber_runtime_create(&o, &c));
  ok(limber_get_cache_capacity(&now));
  assert_int_equal(now, 2 << 20);
  limber_runtime_destroy(b);
  ok(limber_get_cache_capacity(&now));
  assert_int_equal(now, 2 << 20);
  limber_runtime_destroy(a);
  limber_runtime_destroy(c);
  ok(limber_set_cache_capacity(first));
}

// -- precedence --------------------------------------------------------------

static void the_most_eager_runtime_decides(void **state) {
  (void)state;
  runtime waits, patient, eager;
  open_pair(&waits, 4, LIMBER_COMPILE_SETTLE, 0);
  for (int i = 0; i < 3; i++) ok(run(&waits));
  open_pair(&eager, 5, LIMBER_COMPILE_BACKGROUND, 1);
  ok(run(&eager));
  wait_for_kernels(&eager);
  usleep(300000);  // time for a background compilation, which must not happen
  assert_false(kernels_are_here(&waits));
  open_pair(&patient, 4, LIMBER_COMPILE_BACKGROUND, 1000000);
  ok(run(&patient));
  end(&eager);
  open_pair(&eager, 4, LIMBER_COMPILE_BACKGROUND, 1);
  ok(run(&eager));
  wait_for_kernels(&eager);
  assert_true(kernels_are_here(&waits) && kernels_are_here(&patient));
  end(&waits);
  end(&patient);
  end(&eager);
}

static void a_session_may_be_more_eager_than_its_runtime(void **state) {
  (void)state;
  limber_session_options o = LIMBER_SESSION_OPTIONS_INIT;
  runtime t;
  ok(open_runtime(&t, 1, LIMBER_COMPILE_SETTLE, 1));
  t.model = model_of(6);
  o.compile = LIMBER_COMPILE_BACKGROUND;
  ok(limber_session_open_memory(t.r, t.model.b.data, t.model.b.len, &o, &t.s));
  ok(run(&t));
  wait_for_kernels(&t);
  end(&t);
}

static void requests_of_a_destroyed_runtime_are_dropped(void **state) {
  (void)state;
  runtime gone, stays;
  open_pair(&gone, 7, LIMBER_COMPILE_SETTLE, 0);
  open_pair(&stays, 8, LIMBER_COMPILE_SETTLE, 0);
  ok(run(&gone));
  ok(run(&stays));
  uint64_t before = stats_of(&stays).kernels;
  uint64_t requested = stats_of(&stays).kernels_requested;
  end(&gone);
  ok(limber_session_settle(stays.s, 60));
  assert_int_equal(stats_of(&stays).kernels - before, requested);
  end(&stays);
}

// -- destroying runtimes -----------------------------------------------------

// The primitive stays in the cache.
static void use_primitive(const runtime *t, int64_t n) {
  limber_primitive_desc d = {.size = sizeof d, .kind = LIMBER_ELTWISE};
  limber_primitive *p;
  d.alg = LIMBER_ALG_RELU;
  d.in[0] = (limber_operand){.dtype = LIMBER_F32, .rank = 1, .dims = {n}};
  ok(limber_primitive_create(t->r, &d, NULL, &p));
  limber_primitive_destroy(p);
}

static void the_worker_ends_with_the_last_runtime(void **state) {
  (void)state;
  for (int i = 9; i < 12; i++) {
    runtime t;
    open_pair(&t, i, LIMBER_COMPILE_BACKGROUND, 1);
    ok(run(&t));
    if (i == 10) wait_for_kernels(&t);
    use_primitive(&t, i);
    end(&t);
    if (i == 11) usleep(250000);  // time for a worker to start
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
  }
}

static void *come_and_go(void *user) {
  unsigned x = *(unsigned *)user;
  for (int i = 0; i < 12; i++) {
    runtime t;
    limber_cache_stats stats = {.size = sizeof stats};
    x = x * 1103515245 + 12345;
    int background = x >> 16 & 1;
    int compile =
        background ? LIMBER_COMPILE_BACKGROUND : LIMBER_COMPILE_SETTLE;
    if (open_runtime(&t, 1 + (int)(x >> 17 & 1), compile, 1)) return user;
    if (open_model(&t, 12 + (int)((x >> 20) % (KINDS - 12)))) return user;
    for (int k = 0; k < 4; k++)
      if (run(&t)) return user;
    if (x >> 18 & 1) (void)limber_session_settle(t.s, 0.01);
    if (limber_get_cache_stats(t.r, &stats)) return user;
    if (x >> 19 & 1) limber_set_cache_capacity(x >> 10 & 0xfffff);
    end(&t);
  }
  return NULL;
}

static void runtimes_are_created_and_destroyed_concurrently(void **state) {
  (void)state;
  enum { THREADS = 4 };
  pthread_t threads[THREADS];
  unsigned seeds[THREADS];
  uint64_t capacity;
  ok(limber_get_cache_capacity(&capacity));
  for (unsigned i = 0; i < THREADS; i++) {
    seeds[i] = i + 1;
    assert_false(pthread_create(&threads[i], NULL, come_and_go, &seeds[i]));
  }
  for (int i = 0; i < THREADS; i++) {
    void *bad;
    pthread_join(threads[i], &bad);
    assert_null(bad);
  }
  ok(limber_set_cache_capacity(capacity));
  assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
}

// No default runtime is created before the last test that looks for processes.
int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_worker_ends_with_the_last_runtime),
      cmocka_unit_test(runtimes_are_created_and_destroyed_concurrently),
      cmocka_unit_test(kernels_outlive_the_runtime_that_requested_them),
      cmocka_unit_test(every_runtime_that_uses_a_kernel_gets_its_events),
      cmocka_unit_test(primitives_are_shared_by_runtimes),
      cmocka_unit_test(the_last_capacity_set_counts),
      cmocka_unit_test(the_most_eager_runtime_decides),
      cmocka_unit_test(a_session_may_be_more_eager_than_its_runtime),
      cmocka_unit_test(requests_of_a_destroyed_runtime_are_dropped),
      cmocka_unit_test(process_statistics_are_the_same_for_every_runtime),
  };
  testdir dir;
  if (testdir_init(&dir)) return 1;
  const char *worker = testdir_at(&dir, "kernel");
  if (symlink(FAKE_WORKER, worker) || setenv("LIMBER_JIT_PATH", worker, 1))
    return 1;
  setenv("LIMBER_KERNEL_TRIALS", "off", 1);
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  testdir_fini(&dir);
  return failed;
}
