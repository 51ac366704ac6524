// api/api_test.c -- tests the public functions as a program would use them.
#include <limber/limber.h>
#include <pthread.h>

#include "onnx/model_test.h"

// -- a model: sum = x + y, twice = sum + sum, all float32[n,3] ----------------

static pb add_model(const char *declared) {
  pb g = {0};
  pb_msg(&g, 1, pb_node("Add", "first", "x,y", "sum"));
  pb_msg(&g, 1, pb_node("Add", "second", "sum,sum", "twice"));
  pb_str(&g, 2, "adds");
  pb_msg(&g, 11, pb_value("x", T_FLOAT, "n,3"));
  pb_msg(&g, 11, pb_value("y", T_FLOAT, "n,3"));
  pb_msg(&g, 12, pb_value("sum", T_FLOAT, declared));
  pb_msg(&g, 12, pb_value("twice", T_FLOAT, "n,3"));
  return pb_model(g, 17);
}

typedef struct fixture {
  pb model;
  limber_runtime *runtime;
  limber_session *session;
  char log[1024];
  int live, most;  // tensors of the allocator: now, and at most
} fixture;

static void keep_line(void *user, int level, const char *line) {
  fixture *f = user;
  size_t n = strlen(f->log);
  snprintf(f->log + n, sizeof f->log - n, "%d %s\n", level, line);
}

static void *count_alloc(void *user, size_t size, size_t align) {
  fixture *f = user;
  void *p = NULL;
  if (posix_memalign(&p, align, size)) return NULL;
  if (++f->live > f->most) f->most = f->live;
  return p;
}

static void count_free(void *user, void *p) {
  ((fixture *)user)->live--;
  free(p);
}

static int open_declared(void **state, const char *declared) {
  fixture *f = calloc(1, sizeof *f);
  *state = f;
  f->model = add_model(declared);
  limber_allocator memory = {count_alloc, count_free, f};
  limber_runtime_options o = LIMBER_RUNTIME_OPTIONS_INIT;
  o.threads = 2;
  o.log = keep_line;
  o.log_user = f;
  o.log_level = LIMBER_LOG_WARN;
  o.allocator = &memory;
  return limber_runtime_create(&o, &f->runtime) ||
         limber_session_open_memory(f->runtime, f->model.b.data, f->model.b.len,
                                    NULL, &f->session);
}

static int set_up(void **state) { return open_declared(state, "n,3"); }
static int set_up_wrong(void **state) { return open_declared(state, "5,3"); }

static int tear_down(void **state) {
  fixture *f = *state;
  limber_session_close(f->session);
  assert_int_equal(f->live, 0);
  limber_runtime_destroy(f->runtime);
  lb_strbuf_fini(&f->model.b);
  free(f);
  return 0;
}

static float ones[6] = {1, 1, 1, 1, 1, 1};

static limber_tensor input(const char *name, int64_t n) {
  return (limber_tensor){.name = name,
                         .dtype = LIMBER_F32,
                         .rank = 2,
                         .dims = {n, 3},
                         .data = ones,
                         .bytes = sizeof ones};
}

static void expect_rejected(limber_status got, limber_status want,
                            const char *message) {
  assert_int_equal(got, want);
  assert_string_equal(limber_last_error(), message);
}

// -- running -----------------------------------------------------------------

static void inputs_and_outputs_are_found_by_name_or_position(void **state) {
  fixture *f = *state;
  limber_tensor in[2] = {input(NULL, 2), input(NULL, 2)};
  limber_tensor named[2] = {input("y", 2), input("x", 2)};
  limber_tensor out[2] = {{.name = "twice"}, {.name = "sum"}}, first = {0};
  assert_int_equal(limber_session_run(f->session, in, 2, out, 2, NULL),
                   LIMBER_OK);
  assert_true(((float *)out[0].data)[5] == 4);
  assert_true(((float *)out[1].data)[5] == 2);
  assert_int_equal(limber_session_run(f->session, named, 2, &first, 1, NULL),
                   LIMBER_OK);
  assert_true(((float *)first.data)[0] == 2);
  assert_int_equal(first.rank, 2);
  assert_int_equal(first.dims[0], 2);
  assert_int_equal(first.bytes, 24);
  limber_tensor_free(&out[0]);
  limber_tensor_free(&out[1]);
  limber_tensor_free(&first);
  limber_tensor_free(&first);  // freeing twice has no effect
}

static void a_name_may_be_listed_twice(void **state) {
  (void)state;
  pb g = {0};
  pb_msg(&g, 1, pb_node("Add", "first", "x,x", "sum"));
  pb_str(&g, 2, "adds");
  pb_msg(&g, 11, pb_value("x", T_FLOAT, "n,3"));
  pb_msg(&g, 12, pb_value("sum", T_FLOAT, "n,3"));
  pb_msg(&g, 12, pb_value("sum", T_FLOAT, "n,3"));
  pb model = pb_model(g, 17);
  limber_session *s;
  limber_tensor in = input("x", 2);
  limber_tensor out[2] = {{.name = "sum"}, {.name = "sum"}};
  assert_int_equal(
      limber_session_open_memory(NULL, model.b.data, model.b.len, NULL, &s),
      LIMBER_OK);
  assert_int_equal(limber_session_run(s, &in, 1, out, 2, NULL), LIMBER_OK);
  for (int i = 0; i < 2; i++) {
    assert_true(((float *)out[i].data)[5] == 2);
    limber_tensor_free(&out[i]);
  }
  limber_session_close(s);
  lb_strbuf_fini(&model.b);
}

static void a_run_can_have_a_timeout_and_be_cancelled(void **state) {
  fixture *f = *state;
  limber_tensor in[2] = {input(NULL, 2), input(NULL, 2)}, out = {0};
  limber_run_options o = LIMBER_RUN_OPTIONS_INIT;
  limber_cancel *cancel;
  assert_int_equal(limber_cancel_create(&cancel), LIMBER_OK);
  o.cancel = cancel;
  o.timeout = 3600;
  assert_int_equal(limber_session_run(f->session, in, 2, &out, 1, &o),
                   LIMBER_OK);
  limber_tensor_free(&out);
  limber_cancel_trigger(cancel);
  assert_int_equal(limber_cancel_triggered(cancel), 1);
  assert_int_equal(limber_session_run(f->session, in, 2, &out, 1, &o),
                   LIMBER_CANCELLED);
  assert_non_null(strstr(limber_last_error(), "the run was cancelled after"));
  assert_non_null(strstr(limber_last_error(), "after 0 of 1 steps"));
  assert_null(out.data);
  limber_cancel_reset(cancel);
  o.timeout = -1;
  assert_int_equal(limber_session_run(f->session, in, 2, &out, 1, &o),
                   LIMBER_CANCELLED);
  assert_non_null(strstr(limber_last_error(), "the run's deadline passed"));
  o.timeout = __builtin_nan("");
  expect_rejected(limber_session_run(f->session, in, 2, &out, 1, &o),
                  LIMBER_INVALID, "timeout: not a number");
  o = (limber_run_options){0};
  expect_rejected(limber_session_run(f->session, in, 2, &out, 1, &o),
                  LIMBER_INVALID,
                  "limber_run_options: set its field size to "
                  "sizeof(limber_run_options)");
  o = (limber_run_options){.size = sizeof o, .memory_limit = 1};
  assert_int_equal(limber_session_run(f->session, in, 2, &out, 1, &o),
                   LIMBER_OOM);
  limber_cancel_destroy(cancel);
  limber_cancel_destroy(NULL);
}

static limber_stats stats_with(fixture *f, int prefer) {
  limber_session_options o = LIMBER_SESSION_OPTIONS_INIT;
  limber_session *s;
  limber_stats stats = {.size = sizeof stats};
  o.prefer_reusable_kernels = prefer;
  assert_int_equal(limber_session_open_memory(f->runtime, f->model.b.data,
                                              f->model.b.len, &o, &s),
                   LIMBER_OK);
  assert_int_equal(limber_session_stats(s, &stats), LIMBER_OK);
  limber_session_close(s);
  return stats;
}

// The fixture does not set the option, so the environment or build decides.
static void a_session_may_prefer_reusable_kernels(void **state) {
  fixture *f = *state;
  limber_session_options o = LIMBER_SESSION_OPTIONS_INIT;
  limber_session *s;
  limber_stats stats = stats_with(f, 1);
  assert_int_equal(stats.prefer_reusable_kernels, 1);
  assert_string_equal(stats.prefer_reusable_from, "session");
  stats = stats_with(f, -1);
  assert_int_equal(stats.prefer_reusable_kernels, 0);
  assert_string_equal(stats.prefer_reusable_from, "session");
  assert_string_not_equal(stats_with(f, 0).prefer_reusable_from, "session");
  o.prefer_reusable_kernels = 2;
  expect_rejected(limber_session_open_memory(f->runtime, f->model.b.data,
                                             f->model.b.len, &o, &s),
                  LIMBER_INVALID,
                  "prefer_reusable_kernels: 2 is not -1, 0 or 1");
}

static void the_cache_capacity_belongs_to_the_process(void **state) {
  fixture *f = *state;
  uint64_t first, now;
  assert_int_equal(limber_get_cache_capacity(&first), LIMBER_OK);
  assert_int_equal(limber_set_cache_capacity(12345), LIMBER_OK);
  assert_int_equal(limber_get_cache_capacity(&now), LIMBER_OK);
  assert_int_equal(now, 12345);
  limber_runtime_options o = LIMBER_RUNTIME_OPTIONS_INIT;
  limber_runtime *r;
  o.cache_capacity = 1 << 20;
  assert_int_equal(limber_runtime_create(&o, &r), LIMBER_OK);
  assert_int_equal(limber_get_cache_capacity(&now), LIMBER_OK);
  assert_int_equal(now, 1 << 20);
  limber_runtime_destroy(r);
  assert_int_equal(limber_set_cache_capacity(first), LIMBER_OK);
  (void)f;
}

static void cache_statistics_are_reported(void **state) {
  fixture *f = *state;
  limber_cache_stats s = {.size = sizeof s}, before = {.size = sizeof before};
  limber_runtime_info i = {.size = sizeof i};
  char *text;
  assert_int_equal(limber_get_cache_stats(f->runtime, &before), LIMBER_OK);
  limber_tensor in[2] = {input(NULL, 2), input(NULL, 2)}, out = {0};
  assert_int_equal(limber_session_run(f->session, in, 2, &out, 1, NULL),
                   LIMBER_OK);
  limber_tensor_free(&out);
  assert_int_equal(limber_get_cache_stats(f->runtime, &s), LIMBER_OK);
  assert_int_equal(s.pack.hits + s.pack.misses >= 1, s.slots >= 1);
  assert_true(!s.slots || s.kernels.hits + s.kernels.misses >
                              before.kernels.hits + before.kernels.misses);
  assert_int_equal(limber_metrics(f->runtime, &text), LIMBER_OK);
  assert_non_null(strstr(text, "# TYPE limber_cache_hits_total counter\n"));
  assert_non_null(strstr(text,
                         "limber_cache_evictions_total{layer=\"kernels\"}"
                         " 0\n"));
  limber_string_free(text);
  assert_int_equal(limber_runtime_describe(f->runtime, &i), LIMBER_OK);
  assert_int_equal(i.threads, 2);
  assert_true(*i.isa);
  expect_rejected(limber_get_cache_stats(f->runtime, &(limber_cache_stats){0}),
                  LIMBER_INVALID,
                  "limber_cache_stats: set its field size to "
                  "sizeof(limber_cache_stats)");
}

static void trimming_frees_all_unused_memory(void **state) {
  fixture *f = *state;
  limber_tensor in[2] = {input(NULL, 2), input(NULL, 2)},
                out = {.name = "twice"};
  assert_int_equal(limber_session_run(f->session, in, 2, &out, 1, NULL),
                   LIMBER_OK);
  limber_tensor_free(&out);
  assert_true(limber_session_trim(f->session) > 0);
  assert_int_equal(f->live, 0);
  assert_true(limber_session_trim(f->session) == 0);
}

static void outputs_are_written_to_the_callers_memory(void **state) {
  fixture *f = *state;
  float buffer[8] = {0};
  limber_tensor in[2] = {input(NULL, 2), input(NULL, 2)};
  limber_tensor out = {.name = "sum", .data = buffer, .bytes = sizeof buffer};
  assert_int_equal(limber_session_run(f->session, in, 2, &out, 1, NULL),
                   LIMBER_OK);
  assert_ptr_equal(out.data, buffer);
  assert_null(out.owner);
  assert_int_equal(out.bytes, 24);
  assert_true(buffer[5] == 2 && buffer[6] == 0);
  out.bytes = 23;
  assert_int_equal(limber_session_run(f->session, in, 2, &out, 1, NULL),
                   LIMBER_INVALID);
  assert_non_null(strstr(limber_last_error(), "24 bytes"));
  limber_tensor_free(&out);  // no effect: Limber did not allocate it
}

static void a_reused_output_is_freed_once(void **state) {
  fixture *f = *state;
  limber_tensor in[2] = {input(NULL, 2), input(NULL, 2)}, out = {0};
  assert_int_equal(limber_session_run(f->session, in, 2, &out, 1, NULL),
                   LIMBER_OK);
  void *data = out.data;
  in[0].dims[0] = in[1].dims[0] = 1;
  assert_int_equal(limber_session_run(f->session, in, 2, &out, 1, NULL),
                   LIMBER_OK);
  assert_ptr_equal(out.data, data);
  assert_ptr_equal(out.owner, f->runtime);
  limber_tensor_free(&out);  // tear_down checks for leaks
}

static void bytes_of_an_output_without_data_are_ignored(void **state) {
  fixture *f = *state;
  limber_session_options o = LIMBER_SESSION_OPTIONS_INIT;
  limber_session *s;
  o.memory_limit = 1 << 20;
  assert_int_equal(limber_session_open_memory(f->runtime, f->model.b.data,
                                              f->model.b.len, &o, &s),
                   LIMBER_OK);
  limber_tensor in[2] = {input(NULL, 2), input(NULL, 2)}, out = {.bytes = 99};
  assert_int_equal(limber_session_run(s, in, 2, &out, 1, NULL), LIMBER_OK);
  assert_int_equal(out.bytes, 24);
  limber_tensor_free(&out);
  limber_session_close(s);
}

static void outputs_outlive_the_session(void **state) {
  fixture *f = *state;
  limber_tensor in[2] = {input(NULL, 1), input(NULL, 1)}, out = {0};
  assert_int_equal(limber_session_run(f->session, in, 2, &out, 1, NULL),
                   LIMBER_OK);
  limber_session_close(f->session);
  f->session = NULL;
  assert_true(((float *)out.data)[2] == 2);
  assert_true(f->most > 0);
  limber_tensor_free(&out);
}

static void inputs_without_elements_need_no_memory(void **state) {
  fixture *f = *state;
  limber_tensor in[2] = {input(NULL, 0), input(NULL, 0)}, out = {0};
  in[0].data = in[1].data = NULL;
  assert_int_equal(limber_session_run(f->session, in, 2, &out, 1, NULL),
                   LIMBER_OK);
  assert_int_equal(out.dims[0], 0);
  assert_int_equal(out.dims[1], 3);
  limber_tensor_free(&out);
}

// -- errors ------------------------------------------------------------------

static void errors_of_wrong_inputs_are_exact(void **state) {
  limber_session *s = ((fixture *)*state)->session;
  limber_tensor out = {0};
  limber_tensor in[3] = {input("x", 2), input("x", 2), input(NULL, 2)};
  expect_rejected(limber_session_run(s, in, 1, &out, 1, NULL), LIMBER_INVALID,
                  "missing input 'y' (float32[n,3])");
  expect_rejected(limber_session_run(s, in, 2, &out, 1, NULL), LIMBER_INVALID,
                  "input 'x' was given twice");
  in[1] = input("y", 2);
  expect_rejected(limber_session_run(s, in, 3, &out, 1, NULL), LIMBER_INVALID,
                  "input 2 was given by position, but the model has only 2");
  in[1] = input("z", 2);
  expect_rejected(limber_session_run(s, in, 2, &out, 1, NULL), LIMBER_INVALID,
                  "the model has no input 'z'; its inputs are 'x', 'y'");
  in[1] = input("y", 2);
  in[1].bytes = 23;
  expect_rejected(limber_session_run(s, in, 2, &out, 1, NULL), LIMBER_INVALID,
                  "input 'y': float32[2,3] needs 24 bytes, data has 23");
  in[1].data = NULL;
  expect_rejected(limber_session_run(s, in, 2, &out, 1, NULL), LIMBER_INVALID,
                  "input 'y': data is NULL, but its dims need 24 bytes");
  in[1] = input("y", 2);
  in[1].rank = 13;
  expect_rejected(limber_session_run(s, in, 2, &out, 1, NULL), LIMBER_INVALID,
                  "input 'y': rank 13 is not in 0 to 12");
  in[1] = input("y", 2);
  in[1].dtype = (limber_dtype)99;
  expect_rejected(limber_session_run(s, in, 2, &out, 1, NULL), LIMBER_INVALID,
                  "input 'y': 99 is not a dtype");
  in[1] = input("y", -2);
  assert_int_equal(limber_session_run(s, in, 2, &out, 1, NULL), LIMBER_INVALID);
  in[1] = input("y", INT64_MAX);
  assert_int_equal(limber_session_run(s, in, 2, &out, 1, NULL), LIMBER_INVALID);
}

static void errors_of_wrong_outputs_are_exact(void **state) {
  limber_session *s = ((fixture *)*state)->session;
  limber_tensor in[2] = {input(NULL, 2), input(NULL, 2)};
  limber_tensor out[3] = {{.name = "z"}};
  expect_rejected(
      limber_session_run(s, in, 2, out, 1, NULL), LIMBER_INVALID,
      "the model has no output 'z'; its outputs are 'sum', 'twice'");
  out[0].name = out[1].name = "sum";
  expect_rejected(limber_session_run(s, in, 2, out, 2, NULL), LIMBER_INVALID,
                  "output 'sum' was requested twice");
  expect_rejected(limber_session_run(s, in, 2, out, 3, NULL), LIMBER_INVALID,
                  "the model has 2 outputs, 3 were requested");
}

static void invalid_options_are_rejected(void **state) {
  (void)state;
  limber_runtime *r;
  limber_runtime_options o = LIMBER_RUNTIME_OPTIONS_INIT;
  o.threads = -1;
  expect_rejected(limber_runtime_create(&o, &r), LIMBER_INVALID,
                  "threads: -1 is not in 0 to 1024");
  assert_null(r);
  o = (limber_runtime_options){0};
  assert_int_equal(limber_runtime_create(&o, &r), LIMBER_INVALID);
  limber_session *s;
  limber_session_options how = LIMBER_SESSION_OPTIONS_INIT;
  how.optimize = 7;
  assert_int_equal(limber_session_open_memory(NULL, "", 0, &how, &s),
                   LIMBER_INVALID);
  assert_null(s);
  how = (limber_session_options)LIMBER_SESSION_OPTIONS_INIT;
  how.deterministic = 2;
  expect_rejected(limber_session_open_memory(NULL, "", 0, &how, &s),
                  LIMBER_INVALID, "deterministic: 2 is neither 0 nor 1");
  how = (limber_session_options)LIMBER_SESSION_OPTIONS_INIT;
  how.load_warmup = 1;
  expect_rejected(limber_session_open_memory(NULL, "", 0, &how, &s),
                  LIMBER_INVALID, "load_warmup: 1 is neither 0 nor -1");
}

static void bytes_that_are_not_a_model_are_rejected(void **state) {
  (void)state;
  limber_session *s;
  limber_survey *survey;
  assert_int_equal(limber_session_open_memory(NULL, NULL, 0, NULL, &s),
                   LIMBER_INVALID);
  assert_int_equal(limber_session_open(NULL, "/none.onnx", NULL, &s),
                   LIMBER_IO);
  assert_non_null(strstr(limber_last_error(), "/none.onnx"));
  assert_int_equal(limber_survey_open("/none.onnx", &survey), LIMBER_IO);
  assert_null(survey);
}

static void *fail_elsewhere(void *text) {
  limber_session *s;
  strcpy(text, limber_last_error());
  limber_session_open(NULL, "/elsewhere.onnx", NULL, &s);
  return NULL;
}

static void each_thread_has_its_own_error(void **state) {
  (void)state;
  limber_session *s;
  pthread_t other;
  char before[4096];
  limber_session_open(NULL, "/here.onnx", NULL, &s);
  assert_int_equal(pthread_create(&other, NULL, fail_elsewhere, before), 0);
  pthread_join(other, NULL);
  assert_string_equal(before, "");
  assert_non_null(strstr(limber_last_error(), "/here.onnx"));
}

// -- descriptions ------------------------------------------------------------

static void a_session_describes_its_model(void **state) {
  fixture *f = *state;
  const limber_value_info *infos;
  assert_int_equal(limber_session_inputs(f->session, &infos), 2);
  assert_string_equal(infos[1].name, "y");
  assert_int_equal(infos[1].dtype, LIMBER_F32);
  assert_int_equal(infos[1].rank, 2);
  assert_string_equal(infos[1].dims[0], "n");
  assert_string_equal(infos[1].dims[1], "3");
  assert_int_equal(limber_session_outputs(f->session, &infos), 2);
  assert_string_equal(infos[1].name, "twice");
  limber_model_info m = {.size = sizeof m};
  assert_int_equal(limber_session_model(f->session, &m), LIMBER_OK);
  assert_string_equal(m.graph_name, "adds");
  assert_int_equal(m.opset, 17);
  assert_int_equal(m.nodes, 2);
  char *text;
  assert_int_equal(limber_session_dump(f->session, &text), LIMBER_OK);
  assert_non_null(strstr(text, "Add"));
  limber_string_free(text);
}

static void a_wrong_declared_dim_causes_one_warning(void **state) {
  fixture *f = *state;
  limber_tensor in[2] = {input(NULL, 2), input(NULL, 2)}, out = {0};
  for (int i = 0; i < 3; i++) {
    assert_int_equal(limber_session_run(f->session, in, 2, &out, 1, NULL),
                     LIMBER_OK);
    limber_tensor_free(&out);
  }
  assert_string_equal(f->log,
                      "2 output 'sum': dim 0 is declared as 5, but is 2\n");
}

static void runs_and_plans_are_counted(void **state) {
  fixture *f = *state;
  for (int64_t n = 1; n <= 2; n++) {
    for (int i = 0; i < 3; i++) {
      limber_tensor in[2] = {input(NULL, n), input(NULL, n)}, out = {0};
      assert_int_equal(limber_session_run(f->session, in, 2, &out, 1, NULL),
                       LIMBER_OK);
      limber_tensor_free(&out);
    }
  }
  limber_stats s = {.size = sizeof s};
  assert_int_equal(limber_session_stats(f->session, &s), LIMBER_OK);
  assert_int_equal(s.runs, 6);
  assert_int_equal(s.plans_built, 2);
  s.size = 0;
  assert_int_equal(limber_session_stats(f->session, &s), LIMBER_INVALID);
}

static void a_plan_needs_no_data_and_serves_the_run_after_it(void **state) {
  fixture *f = *state;
  limber_tensor in[2] = {input(NULL, 2), input(NULL, 2)}, out[2] = {{0}};
  in[0].data = in[1].data = NULL;
  limber_plan_info info = {.size = sizeof info};
  assert_int_equal(limber_session_plan(f->session, in, 2, &info), LIMBER_OK);
  assert_int_equal(info.steps, 2);
  assert_int_equal(info.nodes_left, 0);
  in[0].data = in[1].data = ones;
  assert_int_equal(limber_session_run(f->session, in, 2, out, 2, NULL),
                   LIMBER_OK);
  limber_tensor_free(&out[0]);
  limber_tensor_free(&out[1]);
  limber_stats s = {.size = sizeof s};
  assert_int_equal(limber_session_stats(f->session, &s), LIMBER_OK);
  assert_int_equal(s.plans_built, 1);
  assert_int_equal(s.runs, 1);
}

static void planning_rejects_wrong_shapes(void **state) {
  fixture *f = *state;
  limber_tensor in[2] = {input("x", 2), input("y", 4)};
  in[0].data = in[1].data = NULL;
  expect_rejected(limber_session_plan(f->session, in, 2, NULL), LIMBER_INVALID,
                  "`n`: 2 from `x`, 4 from `y`");
  expect_rejected(limber_session_plan(f->session, in, 1, NULL), LIMBER_INVALID,
                  "missing input 'y' (float32[n,3])");
}

// y = Reshape(x, shape), and z = NonZero(y), whose dims depend on data.
static pb reshape_model(void) {
  pb g = {0};
  pb_msg(&g, 1, pb_node("Reshape", "to", "x,shape", "y"));
  pb_msg(&g, 1, pb_node("NonZero", "where", "y", "z"));
  pb_msg(&g, 1, pb_node("Neg", "after", "z", "w"));
  pb_str(&g, 2, "reshapes");
  pb_msg(&g, 11, pb_value("x", T_FLOAT, "n"));
  pb_msg(&g, 11, pb_value("shape", T_INT64, "2"));
  pb_msg(&g, 12, pb_value("w", T_INT64, "2,m"));
  return pb_model(g, 17);
}

static void planning_requires_contents_that_decide_shapes(void **state) {
  (void)state;
  pb m = reshape_model();
  limber_session *s;
  assert_int_equal(
      limber_session_open_memory(NULL, m.b.data, m.b.len, NULL, &s), LIMBER_OK);
  int64_t shape[2] = {2, 3};
  limber_tensor in[2] = {{.dtype = LIMBER_F32, .rank = 1, .dims = {6}},
                         {.dtype = LIMBER_I64, .rank = 1, .dims = {2}}};
  limber_plan_info info = {.size = sizeof info};
  expect_rejected(
      limber_session_plan(s, in, 2, &info), LIMBER_INVALID,
      "the contents of input 'shape' decide shapes: a plan needs them");
  in[1].data = shape;
  assert_int_equal(limber_session_plan(s, in, 2, &info), LIMBER_OK);
  assert_int_equal(info.steps, 1);
  assert_int_equal(info.nodes_left, 1);
  limber_session_close(s);
  lb_strbuf_fini(&m.b);
}

static void count_step(void *user, const limber_step *step) {
  int *counts = user;
  assert_int_equal(step->size, sizeof *step);
  assert_true(step->end_ns >= step->start_ns);
  assert_true(step->bytes > 0);
  // The library may have been built without kernels.
  bool is_reference = !strcmp(step->tier, "reference");
  assert_true(is_reference || !strcmp(step->tier, "pack"));
  assert_int_equal(step->kernel[0] == 0, is_reference);
  counts[0] += !strcmp(step->op, "Add");
  counts[1]++;
}

static void a_profile_reports_each_step_and_returns_the_results(void **state) {
  fixture *f = *state;
  limber_tensor in[2] = {input(NULL, 2), input(NULL, 2)};
  limber_tensor out[2] = {{0}}, again[2] = {{0}};
  limber_plan_info info = {.size = sizeof info};
  int counts[2] = {0};
  assert_int_equal(limber_session_plan(f->session, in, 2, &info), LIMBER_OK);
  assert_int_equal(
      limber_session_profile(f->session, in, 2, out, 2, count_step, counts),
      LIMBER_OK);
  assert_int_equal(limber_session_run(f->session, in, 2, again, 2, NULL),
                   LIMBER_OK);
  assert_int_equal(counts[1], info.steps);
  assert_int_equal(counts[0], counts[1]);
  assert_memory_equal(out[0].data, again[0].data, out[0].bytes);
  for (int i = 0; i < 2; i++) {
    limber_tensor_free(&out[i]);
    limber_tensor_free(&again[i]);
  }
}

static void a_failed_profile_reports_no_steps(void **state) {
  fixture *f = *state;
  limber_tensor in[1] = {input("x", 2)}, out[2] = {{0}};
  int counts[2] = {0};
  expect_rejected(
      limber_session_profile(f->session, in, 1, out, 2, count_step, counts),
      LIMBER_INVALID, "missing input 'y' (float32[n,3])");
  assert_int_equal(counts[1], 0);
}

static void a_runtime_has_the_requested_threads(void **state) {
  assert_int_equal(limber_runtime_threads(((fixture *)*state)->runtime), 2);
  assert_true(limber_runtime_threads(NULL) >= 1);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

// Tensors that a run allocated stay valid until the runtime is destroyed.
static void outputs_outlive_their_session(void **state) {
  fixture *f = *state;
  limber_tensor in[] = {input("x", 2), input("y", 2)};
  limber_tensor out[] = {{.name = "twice"}, {.name = "sum"}};
  assert_int_equal(limber_session_run(f->session, in, 2, out, 2, NULL),
                   LIMBER_OK);
  limber_session_close(f->session);
  f->session = NULL;
  assert_int_equal(f->live, 2);
  for (int i = 0; i < 2; i++) {
    float *data = out[i].data;
    assert_ptr_equal(out[i].owner, f->runtime);
    for (int k = 0; k < 6; k++) assert_true(data[k] == (i ? 2 : 4));
    memset(data, 0, out[i].bytes);
    limber_tensor_free(&out[i]);
    assert_int_equal(f->live, 1 - i);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(inputs_and_outputs_are_found_by_name_or_position),
      TEST(outputs_outlive_their_session),
      cmocka_unit_test(a_name_may_be_listed_twice),
      TEST(a_run_can_have_a_timeout_and_be_cancelled),
      TEST(a_session_may_prefer_reusable_kernels),
      TEST(the_cache_capacity_belongs_to_the_process),
      TEST(cache_statistics_are_reported),
      TEST(trimming_frees_all_unused_memory),
      TEST(outputs_are_written_to_the_callers_memory),
      TEST(a_reused_output_is_freed_once),
      TEST(bytes_of_an_output_without_data_are_ignored),
      TEST(outputs_outlive_the_session),
      TEST(inputs_without_elements_need_no_memory),
      TEST(errors_of_wrong_inputs_are_exact),
      TEST(errors_of_wrong_outputs_are_exact),
      cmocka_unit_test(invalid_options_are_rejected),
      cmocka_unit_test(bytes_that_are_not_a_model_are_rejected),
      cmocka_unit_test(each_thread_has_its_own_error),
      TEST(a_session_describes_its_model),
      cmocka_unit_test_setup_teardown(a_wrong_declared_dim_causes_one_warning,
                                      set_up_wrong, tear_down),
      TEST(runs_and_plans_are_counted),
      TEST(a_plan_needs_no_data_and_serves_the_run_after_it),
      TEST(planning_rejects_wrong_shapes),
      cmocka_unit_test(planning_requires_contents_that_decide_shapes),
      TEST(a_profile_reports_each_step_and_returns_the_results),
      TEST(a_failed_profile_reports_no_steps),
      TEST(a_runtime_has_the_requested_threads),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
