// api/event_test.c -- tests the event callback.
#include <limber/limber.h>

#include "onnx/model_test.h"

typedef struct heard {
  int n;
  struct {
    char name[32], reason[32], text[200];
    int64_t value, start_ns, end_ns;
  } list[256];
} heard;

static void hear(void *user, const limber_event *e) {
  heard *h = user;
  if (h->n == 256) return;
  snprintf(h->list[h->n].name, 32, "%s", e->name);
  snprintf(h->list[h->n].reason, 32, "%s", e->reason);
  snprintf(h->list[h->n].text, 200, "%s", e->text);
  h->list[h->n].value = e->value;
  h->list[h->n].start_ns = e->start_ns;
  h->list[h->n++].end_ns = e->end_ns;
  assert_true(*e->reason_text && e->thread > 0);
}

// Returns the i-th event of that name; fails if there are fewer.
static int find(const heard *h, const char *name, int i) {
  for (int k = 0; k < h->n; k++)
    if (!strcmp(h->list[k].name, name) && i-- == 0) return k;
  fail_msg("no such event: %s", name);
  return -1;
}

static void was(const heard *h, const char *name, int i, const char *reason,
                const char *text) {
  int k = find(h, name, i);
  assert_string_equal(h->list[k].reason, reason);
  if (!strstr(h->list[k].text, text))
    fail_msg("%s: %s does not contain: %s", name, h->list[k].text, text);
  assert_true(h->list[k].end_ns >= h->list[k].start_ns);
}

static int count(const heard *h, const char *name) {
  int n = 0;
  for (int i = 0; i < h->n; i++) n += !strcmp(h->list[i].name, name);
  return n;
}

// y = Neg(Transpose(NonZero(x))): two stages
static pb stages_model(void) {
  pb g = {0};
  pb_msg(&g, 1, pb_node("NonZero", "nz", "x", "a"));
  pb_msg(&g, 1, pb_node("Transpose", "tr", "a", "b"));
  pb_msg(&g, 1, pb_node("Neg", "neg", "b", "y"));
  pb_str(&g, 2, "stages");
  pb_msg(&g, 11, pb_value("x", T_FLOAT, "n"));
  pb_msg(&g, 12, pb_value("y", T_INT64, "m,1"));
  return pb_model(g, 17);
}

typedef struct fixture {
  heard heard;
  pb model;
  limber_runtime *runtime;
  limber_session *session;
} fixture;

static int set_up(void **state) {
  fixture *f = calloc(1, sizeof *f);
  limber_runtime_options o = LIMBER_RUNTIME_OPTIONS_INIT;
  limber_session_options s = LIMBER_SESSION_OPTIONS_INIT;
  *state = f;
  f->model = stages_model();
  o.event = hear;
  o.event_user = &f->heard;
  s.plan_bytes = 1;  // every plan evicts the one before
  return limber_runtime_create(&o, &f->runtime) ||
         limber_session_open_memory(f->runtime, f->model.b.data, f->model.b.len,
                                    &s, &f->session);
}

static int tear_down(void **state) {
  fixture *f = *state;
  limber_session_close(f->session);
  limber_runtime_destroy(f->runtime);
  lb_strbuf_fini(&f->model.b);
  free(f);
  return 0;
}

static limber_status run(fixture *f, int64_t n, const limber_run_options *o) {
  static float ones[8] = {1, 1, 1, 1, 1, 1, 1, 1};
  limber_tensor in = {
      .dtype = LIMBER_F32, .rank = 1, .dims = {n}, .data = ones};
  limber_tensor out = {0};
  limber_status st = limber_session_run(f->session, &in, 1, &out, 1, o);
  limber_tensor_free(&out);
  limber_runtime_flush(f->runtime);
  return st;
}

static void plans_and_runs_emit_events(void **state) {
  fixture *f = *state;
  const heard *h = &f->heard;
  assert_int_equal(run(f, 3, NULL), LIMBER_OK);
  was(h, "plan_built", 0, "new_shapes", "x=3");
  was(h, "plan_built", 1, "next_stage", "x=3");
  was(h, "run_ended", 0, "done", "x=3");
  was(h, "plan_evicted", 0, "budget", "");
  assert_true(h->list[find(h, "plan_evicted", 0)].value > 0);
  assert_int_equal(count(h, "plan_built"), 2);
  assert_int_equal(run(f, 5, NULL), LIMBER_OK);
  was(h, "run_ended", 1, "done", "x=5");
}

static void failed_and_cancelled_runs_emit_events(void **state) {
  fixture *f = *state;
  const heard *h = &f->heard;
  limber_run_options o = LIMBER_RUN_OPTIONS_INIT;
  limber_cancel *cancel;
  assert_int_equal(limber_cancel_create(&cancel), LIMBER_OK);
  limber_cancel_trigger(cancel);
  o.timeout = -1;
  assert_int_equal(run(f, 3, &o), LIMBER_CANCELLED);
  was(h, "run_cancelled", 0, "deadline", "at NonZero 'nz'");
  o.timeout = 0;
  o.cancel = cancel;
  assert_int_equal(run(f, 3, &o), LIMBER_CANCELLED);
  was(h, "run_cancelled", 1, "cancelled", "after 0 of 1 steps");
  o.cancel = NULL;
  o.memory_limit = 1;
  assert_int_equal(run(f, 3, &o), LIMBER_OOM);
  was(h, "run_ended", 0, "failed", "memory limit");
  limber_cancel_destroy(cancel);
}

static void trimmed_memory_emits_an_event(void **state) {
  fixture *f = *state;
  assert_int_equal(run(f, 3, NULL), LIMBER_OK);
  uint64_t bytes = limber_session_trim(f->session);
  limber_runtime_flush(f->runtime);
  int k = find(&f->heard, "memory_trimmed", 0);
  was(&f->heard, "memory_trimmed", 0, "requested", "");
  assert_true(bytes > 0 && f->heard.list[k].value == (int64_t)bytes);
}

static void all_names_can_be_listed(void **state) {
  (void)state;
  size_t n = 0, reasons = 0;
  while (limber_event_name(n)) n++;
  while (limber_reason_name(reasons)) reasons++;
  assert_true(n > 10 && reasons > 10);
  limber_runtime_flush(NULL);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(plans_and_runs_emit_events),
      TEST(failed_and_cancelled_runs_emit_events),
      TEST(trimmed_memory_emits_an_event),
      cmocka_unit_test(all_names_can_be_listed),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
