// api/oom_test.c -- lets every allocation of a load and of a run fail once.
// Each time the result is LIMBER_OOM or correct, and nothing leaks (which
// AddressSanitizer checks). The linker replaces the C library's allocation
// functions by those of this file (CMakeLists.txt).
#include <limber/limber.h>

#include "base/testdir.h"
#include "onnx/model_test.h"

// -- allocations that fail ----------------------------------------------------

static long countdown = -1;  // allocations until one fails; -1: none fails

static bool fails(void) { return countdown >= 0 && countdown-- == 0; }

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
int __real_posix_memalign(void **out, size_t align, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
int __wrap_posix_memalign(void **out, size_t align, size_t n);

void *__wrap_malloc(size_t n) { return fails() ? NULL : __real_malloc(n); }

void *__wrap_calloc(size_t n, size_t size) {
  return fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n) {
  return fails() ? NULL : __real_realloc(p, n);
}

int __wrap_posix_memalign(void **out, size_t align, size_t n) {
  return fails() ? 12 : __real_posix_memalign(out, align, n);
}

// -- a model with many kinds of operators -------------------------------------

static void add_shapes(pb *g) {
  static const int64_t zero[] = {0}, two[] = {2, 2};
  pb_msg(g, 1, pb_node("MatMul", "mm", "x,w", "product"));
  pb_msg(g, 1, pb_node("Relu", "relu", "product", "r"));
  pb_msg(g, 1, pb_node("Shape", "shape", "x", "dims"));
  pb_msg(g, 1, pb_node("Gather", "first", "dims,zero", "n"));
  pb cat = pb_node("Concat", "cat", "n,two", "target");
  pb_attr_int(&cat, "axis", 0);
  pb_msg(g, 1, cat);
  pb_msg(g, 1, pb_node("Reshape", "re", "r,target", "cube"));
  pb_msg(g, 1, pb_node("Transpose", "tr", "cube", "transposed"));
  pb_msg(g, 1, pb_node("NonZero", "nz", "r", "places"));
  pb_msg(g, 5, pb_int64s("zero", 1, zero));
  pb_msg(g, 5, pb_int64s("two", 2, two));
}

static void add_bodies(pb *g) {
  static const float none[] = {0};
  pb loop = pb_node("Loop", "loop", "trips,-,x", "last,all");
  pb_attr_graph(
      &loop, "body",
      pb_graph("i,c,v", pb_node("Add", "double", "v,v", "vv"), "c,vv,vv"));
  pb_msg(g, 1, loop);
  pb_msg(g, 1, pb_node("ReduceMax", "most", "x", "max"));
  pb_msg(g, 1, pb_node("Greater", "gt", "max,none", "several"));
  pb_msg(g, 1, pb_node("Squeeze", "one", "several", "positive"));
  pb branch = pb_node("If", "if", "positive", "z");
  pb_attr_graph(&branch, "then_branch",
                pb_graph("", pb_node("Neg", "neg", "x", "t"), "t"));
  pb_attr_graph(&branch, "else_branch",
                pb_graph("", pb_node("Abs", "abs", "x", "e"), "e"));
  pb_msg(g, 1, branch);
  pb_msg(g, 5, pb_floats("none", 1, none));
}

static pb new_model(void) {
  static const float w[16] = {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1};
  static const int64_t square[] = {4, 4};
  static const char *const outputs[] = {"transposed", "places", "last", "all",
                                        "z"};
  pb g = {0}, weight = pb_tensor("w", T_FLOAT, 2, square);
  pb_raw(&weight, 9, w, sizeof w);
  pb_msg(&g, 5, weight);
  add_shapes(&g);
  add_bodies(&g);
  pb_msg(&g, 11, pb_value("x", T_FLOAT, "n,4"));
  pb_msg(&g, 11, pb_value("trips", T_INT64, ""));
  for (size_t i = 0; i < sizeof outputs / sizeof *outputs; i++)
    pb_msg(&g, 12, pb_value(outputs[i], i == 1 ? T_INT64 : T_FLOAT, NULL));
  return pb_model(g, 17);
}

// -- the tests ----------------------------------------------------------------

enum { OUTPUTS = 5 };

static limber_status run(limber_session *s) {
  float x[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  int64_t iterations = 3;
  limber_tensor in[] = {
      {.dtype = LIMBER_F32, .rank = 2, .dims = {2, 4}, .data = x},
      {.dtype = LIMBER_I64, .data = &iterations}};
  limber_tensor out[OUTPUTS] = {{0}};
  limber_status st = limber_session_run(s, in, 2, out, OUTPUTS, NULL);
  if (!st) {
    assert_int_equal(out[1].dims[1], 8);
    assert_true(((float *)out[2].data)[7] == 64);
    assert_int_equal(out[3].dims[0], 3);
    assert_true(((float *)out[4].data)[7] == -8);
  }
  for (int i = 0; i < OUTPUTS; i++) {
    if (st) assert_null(out[i].data);
    limber_tensor_free(&out[i]);
  }
  return st;
}

static limber_status open_model(limber_runtime *r, const pb *m,
                                limber_session **out) {
  return limber_session_open_memory(r, m->b.data, m->b.len, NULL, out);
}

typedef struct fixture {
  limber_runtime *runtime;
  pb model;
} fixture;

static int set_up(void **state) {
  fixture *f = calloc(1, sizeof *f);
  *state = f;
  f->model = new_model();
  limber_runtime_options o = LIMBER_RUNTIME_OPTIONS_INIT;
  o.threads = 1;  // the countdown works for one thread only
  o.log_level = LIMBER_LOG_ERROR;
  return limber_runtime_create(&o, &f->runtime) != LIMBER_OK;
}

static int tear_down(void **state) {
  fixture *f = *state;
  limber_runtime_destroy(f->runtime);
  lb_strbuf_fini(&f->model.b);
  free(f);
  return 0;
}

static void a_load_survives_every_failed_allocation(void **state) {
  fixture *f = *state;
  limber_status st = LIMBER_OOM;
  long tries = 0;
  for (; st == LIMBER_OOM && tries < 100000; tries++) {
    limber_session *s;
    countdown = tries;
    st = open_model(f->runtime, &f->model, &s);
    bool reached = countdown < 0;
    countdown = -1;
    if (st) {
      assert_null(s);
      continue;
    }
    assert_int_equal(run(s), LIMBER_OK);
    limber_session_close(s);
    if (reached) st = LIMBER_OOM;  // it succeeded without the allocation
  }
  assert_int_equal(st, LIMBER_OK);
  assert_true(tries > 20);
}

static void a_run_survives_every_failed_allocation(void **state) {
  fixture *f = *state;
  limber_status st = LIMBER_OOM;
  long tries = 0;
  for (; st == LIMBER_OOM && tries < 100000; tries++) {
    limber_session *s;
    assert_int_equal(open_model(f->runtime, &f->model, &s), LIMBER_OK);
    countdown = tries;
    st = run(s);
    bool reached = countdown < 0;
    countdown = -1;
    assert_int_equal(run(s), LIMBER_OK);  // the session still works
    limber_session_close(s);
    if (!st && reached) st = LIMBER_OOM;
  }
  assert_int_equal(st, LIMBER_OK);
  assert_true(tries > 20);
}

static void ignore_node(void *user, const limber_node *node) {
  (void)user, (void)node;
}

static void ignore_step(void *user, const limber_step *step) {
  (void)user, (void)step;
}

// Plans, records and warms shapes, and explains a run.
static limber_status look_ahead(limber_session *s, const char *path) {
  float x[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  int64_t iterations = 3;
  limber_tensor in[] = {
      {.dtype = LIMBER_F32, .rank = 2, .dims = {2, 4}, .data = x},
      {.dtype = LIMBER_I64, .data = &iterations}};
  limber_tensor out = {.name = "transposed"};
  limber_status st = limber_session_record_shapes(s, path);
  if (!st)
    st = limber_session_explain_nodes(s, in, 2, &out, 1, ignore_step,
                                      ignore_node, NULL);
  if (!st) st = limber_session_nodes(s, ignore_node, NULL);
  limber_tensor_free(&out);
  if (!st) st = limber_session_record_shapes(s, NULL);
  limber_shapes *shapes;
  if (!st) st = limber_shapes_open(path, &shapes);
  if (st) return st;
  const limber_signature *list;
  size_t n = limber_shapes_list(shapes, &list);
  for (size_t i = 0; !st && i < n; i++)
    st = limber_session_plan_signature(s, &list[i], NULL);
  limber_shapes_close(shapes);
  return st;
}

static void planning_and_warming_survive_every_failed_allocation(void **state) {
  fixture *f = *state;
  testdir dir;
  assert_int_equal(testdir_init(&dir), 0);
  limber_status st = LIMBER_OOM;
  long tries = 0;
  for (; st == LIMBER_OOM && tries < 100000; tries++) {
    limber_session *s;
    assert_int_equal(open_model(f->runtime, &f->model, &s), LIMBER_OK);
    countdown = tries;
    st = look_ahead(s, testdir_at(&dir, "shapes"));
    bool reached = countdown < 0;
    countdown = -1;
    assert_int_equal(run(s), LIMBER_OK);
    limber_session_close(s);
    if (!st && reached) st = LIMBER_OOM;
  }
  assert_int_equal(st, LIMBER_OK);
  assert_true(tries > 20);
  testdir_fini(&dir);
}

static void a_run_of_known_shapes_allocates_nothing(void **state) {
  fixture *f = *state;
  limber_session *s;
  float x[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  int64_t iterations = 3;
  limber_tensor in[] = {
      {.dtype = LIMBER_F32, .rank = 2, .dims = {2, 4}, .data = x},
      {.dtype = LIMBER_I64, .data = &iterations}};
  limber_tensor out = {.name = "transposed"};
  const long many = 1 << 20;
  assert_int_equal(open_model(f->runtime, &f->model, &s), LIMBER_OK);
  for (int i = 0; i < 3; i++) {
    countdown = many;
    assert_int_equal(limber_session_run(s, in, 2, &out, 1, NULL), LIMBER_OK);
    long left = countdown;
    countdown = -1;
    if (i) assert_int_equal(left, many);
    assert_true(((float *)out.data)[1] == 5);
  }
  limber_tensor_free(&out);
  limber_session_close(s);
}

// Creates a primitive, executes it, and creates it again from its blob.
static limber_status use_primitive(limber_runtime *r, int64_t rows) {
  float x[8] = {1, 2, 3, 4}, w[16] = {0}, y[4] = {1, 1, 1, 1};
  limber_primitive_desc d = {.size = sizeof d, .kind = LIMBER_MATMUL};
  limber_tensor in[] = {{.dtype = LIMBER_F32, .rank = 2, .dims = {1, 4}},
                        {.dtype = LIMBER_F32, .rank = 2, .dims = {1, 4}}};
  limber_tensor out = {.data = y, .bytes = sizeof y};
  limber_primitive *p = NULL, *again = NULL;
  limber_attr *attr = NULL;
  void *blob = NULL;
  size_t size;
  w[0] = (float)rows;  // different constants each time
  in[0].data = x;
  in[1].data = y;  // the memory of the result, so it is copied
  d.in[0] = (limber_operand){
      .dtype = LIMBER_F32, .rank = 2, .dims = {LIMBER_RUNTIME_DIM, 4}};
  d.in[1] = (limber_operand){
      .dtype = LIMBER_F32, .rank = 2, .dims = {4, 4}, .data = w};
  limber_status st = limber_attr_create(&attr);
  if (!st) st = limber_attr_append_eltwise(attr, LIMBER_ALG_RELU, 0, 0);
  if (!st) st = limber_attr_append_sum(attr, 2);
  if (!st) st = limber_primitive_create(r, &d, attr, &p);
  if (!st) st = limber_primitive_execute(p, in, 2, &out, 1, NULL);
  if (!st) assert_true(y[0] == w[0] + 2 && y[1] == 2);
  if (!st) st = limber_primitive_get_cache_blob(p, 60, &blob, &size);
  if (!st)
    st = limber_primitive_create_from_cache_blob(r, &d, attr, blob, size,
                                                 &again);
  limber_primitive_destroy(p);
  limber_primitive_destroy(again);
  limber_blob_free(blob);
  limber_attr_destroy(attr);
  return st;
}

static void a_primitive_survives_every_failed_allocation(void **state) {
  fixture *f = *state;
  limber_status st = LIMBER_OOM;
  long tries = 0;
  for (; st == LIMBER_OOM && tries < 100000; tries++) {
    countdown = tries;
    st = use_primitive(f->runtime, tries + 1);
    bool reached = countdown < 0;
    countdown = -1;
    if (!st && reached) st = LIMBER_OOM;  // it succeeded without the allocation
  }
  if (st) print_error("%s\n", limber_last_error());
  assert_int_equal(st, LIMBER_OK);
  assert_true(tries > 20);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(a_load_survives_every_failed_allocation),
      TEST(a_run_survives_every_failed_allocation),
      TEST(planning_and_warming_survive_every_failed_allocation),
      TEST(a_run_of_known_shapes_allocates_nothing),
      TEST(a_primitive_survives_every_failed_allocation),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
