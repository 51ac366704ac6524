// session/record_test.c -- signatures are recorded, written and read again.
#include "session/record.h"

#include <sys/wait.h>

#include "base/testdir.h"
#include "graph/build_test.h"
#include "session/shapes.h"

// -- text --------------------------------------------------------------------

static lb_span span(const char *text) {
  return (lb_span){(const uint8_t *)text, strlen(text)};
}

static void signatures_round_trip_through_text(void **state) {
  (void)state;
  const char *text =
      "# limber-shapes 1\n"
      "12 x=float32[1,3,48,320]\n"
      "3 a%20b%3d%25=int64[2]{-24,9223372036854775807} s=float64[] > y z%3e\n"
      "2 h=float16[3]{1p-1,-inf,nan} b=bfloat16[1]{201p-6} t=bool[2]{1,0}\n"
      "1 u=uint8[3]{255,0,7} f=float32[4]{13421773p-27,1p-149,-3,0} "
      "e=int32[0]{}\n"
      "1 v=uint64[1]{18446744073709551615} w=int8[1]{-128} >\n"
      "7\n";
  lb_shapes s;
  lb_strbuf again = {0};
  ok(lb_shapes_parse(span(text), &s));
  assert_int_equal(s.n, 6);
  assert_string_equal(s.list[1].names[0], "a b=%");
  assert_int_equal(((int64_t *)s.list[1].inputs[0].data)[0], -24);
  assert_int_equal(s.list[1].inputs[1].rank, 0);
  assert_null(s.list[1].inputs[1].data);
  assert_string_equal(s.list[1].outputs[1], "z>");
  assert_non_null(s.list[3].inputs[2].data);
  assert_non_null(s.list[4].outputs);
  assert_int_equal(s.list[4].n_outputs, 0);
  assert_null(s.list[0].outputs);
  lb_shapes_print_header(&again);
  for (size_t i = 0; i < s.n; i++) lb_shapes_print(&s.list[i], &again);
  assert_string_equal(lb_strbuf_str(&again), text);
  lb_strbuf_fini(&again);
  lb_shapes_fini(&s);
}

static void errors_name_the_line(void **state) {
  (void)state;
  static const struct {
    const char *line, *error;
  } cases[] = {
      {"x=float32[1]", "it does not begin with a count"},
      {"-1 x=float32[1]", "it does not begin with a count"},
      {"1 x", "an input without a '='"},
      {"1 x=float31[1]", "an unknown type"},
      {"1 x=float32", "an unknown type"},
      {"1 x=float32[1", "']' expected after the dims"},
      {"1 x=float32[-1]", "a dim is not a number"},
      {"1 x=float32[1,]", "a dim is not a number"},
      {"1 x=float32[99999999999999999999]", "a dim is not a number"},
      {"1 x=float32[9223372036854775807,9]", "a tensor that is too large"},
      {"1 x=float32[1,1,1,1,1,1,1,1,1,1,1,1,1]", "too many dims"},
      {"1 x=int64[65]{1}", "too many elements in the contents"},
      {"1 x=int64[2]{1}", "too few elements in the contents"},
      {"1 x=int64[2]{1,2", "'}' expected after the contents"},
      {"1 x=int64[1]{a}", "an element is not a number"},
      {"1 x=int64[1]y", "unexpected text after an input"},
      {"1 x%2=int64[1]", "a '%' without two digits"},
      {"1 x%00=int64[1]", "a '%' without two digits"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char text[200], want[100];
    lb_shapes s;
    snprintf(text, sizeof text, "# limber-shapes 1\n1 x=float32[2]\n%s\n",
             cases[i].line);
    snprintf(want, sizeof want, "line 3: %s", cases[i].error);
    lb_status st = lb_shapes_parse(span(text), &s);
    assert_int_equal(lb_status_code(st), LB_INVALID);
    assert_string_equal(lb_status_message(st), want);
    lb_status_drop(st);
    lb_shapes_fini(&s);
  }
  static const char *const others[] = {"", "{}", "# limber-shapes 2\n",
                                       "# limber-shapes 1"};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
    lb_shapes s;
    lb_status st = lb_shapes_parse(span(others[i]), &s);
    assert_non_null(strstr(lb_status_message(st), "not a file of shapes"));
    lb_status_drop(st);
    lb_shapes_fini(&s);
  }
}

// Corrupt text is an error or another set of signatures, never worse.
static void corrupt_text_does_no_harm(void **state) {
  (void)state;
  const char *text =
      "# limber-shapes 1\n3 a%20b=int64[2]{-24,7} s=float16[2]{1,2} > y z\n";
  size_t n = strlen(text);
  for (size_t at = 18; at < n; at++)
    for (int byte = 0; byte < 256; byte++) {
      char copy[200];
      memcpy(copy, text, n);
      copy[at] = (char)byte;
      lb_shapes s;
      lb_status_drop(lb_shapes_parse((lb_span){(uint8_t *)copy, n}, &s));
      lb_shapes_fini(&s);
      lb_status_drop(lb_shapes_parse((lb_span){(uint8_t *)copy, at}, &s));
      lb_shapes_fini(&s);
    }
}

// -- recording ---------------------------------------------------------------

typedef struct fixture {
  testdir dir;
  char path[PATH_MAX];
  lb_graph *graph;
  lb_session *session;
  lb_log log;
  char lines[500];
} fixture;

static void keep_line(void *user, int level, const char *line) {
  (void)level;
  fixture *f = user;
  snprintf(f->lines, sizeof f->lines, "%s", line);
}

// y = Reshape(-x, shape), z = -x
static int set_up(void **state) {
  fixture *f = calloc(1, sizeof *f);
  *state = f;
  assert_int_equal(testdir_init(&f->dir), 0);
  snprintf(f->path, sizeof f->path, "%s", testdir_at(&f->dir, "shapes"));
  ok(lb_graph_new(&f->graph));
  lb_region *r = f->graph->main;
  lb_value *x = param(r, "x", LB_F32, DIMS(-1));
  lb_value *shape = param(r, "shape", LB_I64, DIMS(-1));
  lb_value *z = NODE1(r, Neg, "neg", x);
  RESULTS(r, NODE1(r, Reshape, "reshape", z, shape), z);
  ok(lb_session_new(f->graph, &(lb_session_options){.passes_off = UINT64_MAX},
                    &f->session));
  f->log = (lb_log){.fn = keep_line, .user = f, .level = LB_LOG_WARN};
  return 0;
}

static int tear_down(void **state) {
  fixture *f = *state;
  lb_session_free(f->session);
  lb_graph_free(f->graph);
  testdir_fini(&f->dir);
  free(f);
  return 0;
}

static void run(fixture *f, int64_t n, int64_t rows, bool all) {
  float *x = calloc((size_t)n + 1, sizeof *x);
  assert_non_null(x);
  int64_t shape[2] = {rows, -1};
  lb_tensor in[2] = {tensor(LB_F32, x, DIMS(n)),
                     tensor(LB_I64, shape, DIMS(2))};
  lb_output out[2] = {{.wanted = true}, {.wanted = all}};
  ok(lb_session_run(f->session, in, out));
  for (int i = 0; i < 2; i++) lb_output_free(f->session, &out[i]);
  free(x);
}

static lb_status record(fixture *f, const char *path) {
  return lb_session_record(f->session, path, &f->log);
}

static void holds(const fixture *f, const char *text) {
  char found[4096];
  ok(lb_file_read_small(f->path, found, sizeof found));
  assert_string_equal(found, text);
}

#define HEAD "# limber-shapes 1\n"

static void signatures_of_runs_are_in_the_file(void **state) {
  fixture *f = *state;
  run(f, 4, 2, true);  // before recording
  ok(record(f, f->path));
  holds(f, HEAD);
  run(f, 6, 2, true);
  for (int i = 0; i < 3; i++) run(f, 6, 3, true);
  for (int i = 0; i < 2; i++) run(f, 6, 3, false);
  ok(record(f, NULL));
  holds(f, HEAD
        "3 x=float32[6] shape=int64[2]{3,-1}\n"
        "2 x=float32[6] shape=int64[2]{3,-1} > reshape:0\n"
        "1 x=float32[6] shape=int64[2]{2,-1}\n");
  run(f, 6, 2, true);  // after recording
  ok(record(f, f->path));
  run(f, 6, 2, true);
  for (int i = 0; i < 3; i++) run(f, 8, 1, true);
  lb_session_free(f->session);  // also writes
  f->session = NULL;
  holds(f, HEAD
        "3 x=float32[6] shape=int64[2]{3,-1}\n"
        "3 x=float32[8] shape=int64[2]{1,-1}\n"
        "2 x=float32[6] shape=int64[2]{3,-1} > reshape:0\n"
        "2 x=float32[6] shape=int64[2]{2,-1}\n");
}

static void failed_runs_are_not_recorded(void **state) {
  fixture *f = *state;
  ok(record(f, f->path));
  float x[4] = {0};
  int64_t shape[2] = {3, 3};
  lb_tensor in[2] = {tensor(LB_F32, x, DIMS(4)),
                     tensor(LB_I64, shape, DIMS(2))};
  lb_output out[2] = {{.wanted = true}, {0}};
  lb_status st = lb_session_run(f->session, in, out);
  assert_true(lb_failed(st));
  lb_status_drop(st);
  ok(record(f, NULL));
  holds(f, HEAD);
}

static void the_most_recent_signatures_are_kept(void **state) {
  fixture *f = *state;
  ok(record(f, f->path));
  enum { MORE = 100 };
  for (int i = 0; i < LB_RECORD_MAX + MORE; i++) {
    run(f, i, 0, false);
    if (i % 50 == 0) run(f, 0, 0, false);  // used often, so it is kept
  }
  ok(record(f, NULL));
  lb_shapes s;
  ok(lb_shapes_read(f->path, &s));
  assert_int_equal(s.n, LB_RECORD_MAX);
  assert_int_equal(s.list[0].inputs[0].dims[0], 0);
  assert_true(s.list[0].count > 50);
  for (size_t i = 1; i < s.n; i++) {
    assert_int_equal(s.list[i].count, 1);
    assert_true(s.list[i].inputs[0].dims[0] > MORE);
  }
  lb_shapes_fini(&s);
}

static void assert_refused(lb_status st, lb_code code, const char *text) {
  assert_int_equal(lb_status_code(st), code);
  if (!strstr(lb_status_message(st), text))
    fail_msg("%s\nlacks: %s", lb_status_message(st), text);
  lb_status_drop(st);
}

static void other_files_are_left_unchanged(void **state) {
  fixture *f = *state;
  const char *text = HEAD "5 tokens=int64[1,7]\n";
  testdir_write(&f->dir, "shapes", text);
  assert_refused(record(f, f->path), LB_INVALID,
                 "the file is of another model: it has no input 'x'");
  holds(f, text);
  testdir_write(&f->dir, "shapes", "precious");
  assert_refused(record(f, f->path), LB_INVALID, "not a file of shapes");
  holds(f, "precious");
  testdir_write(&f->dir, "shapes", HEAD "1 x=float32[1] shape=int64[2]\n");
  assert_refused(record(f, f->path), LB_INVALID,
                 "does not have the contents of input");
  assert_refused(record(f, "/no/such/directory/shapes"), LB_IO,
                 "/no/such/directory");
  run(f, 4, 2, true);  // continues
  ok(record(f, NULL));
}

static void a_forked_child_leaves_the_file_to_its_parent(void **state) {
  fixture *f = *state;
  ok(record(f, f->path));
  run(f, 4, 2, true);
  pid_t child = fork();
  if (child == 0) {
    run(f, 8, 2, true);
    lb_status st = record(f, f->path);
    bool right = lb_status_code(st) == LB_UNSUPPORTED;
    lb_status_drop(st);
    lb_session_free(f->session);
    _exit(right ? 0 : 1);
  }
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
  holds(f, HEAD);
  ok(record(f, NULL));
  holds(f, HEAD "1 x=float32[4] shape=int64[2]{2,-1}\n");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(signatures_round_trip_through_text),
      cmocka_unit_test(errors_name_the_line),
      cmocka_unit_test(corrupt_text_does_no_harm),
      TEST(signatures_of_runs_are_in_the_file),
      TEST(failed_runs_are_not_recorded),
      TEST(the_most_recent_signatures_are_kept),
      TEST(other_files_are_left_unchanged),
      TEST(a_forked_child_leaves_the_file_to_its_parent),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
