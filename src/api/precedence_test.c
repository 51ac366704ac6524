// api/precedence_test.c -- tests the precedence of settings: the session or
// primitive, else the runtime, else the environment, else the default. There is
// one row per setting. Every combination of values is tested in its own
// process, because much state exists once per process.
//
// The linker wraps lb_service_new and lb_session_new (see CMakeLists.txt), so
// that this file can record the options that they were called with.
#include <limber/limber.h>
#include <sys/wait.h>
#include <unistd.h>

#include "compile/service.h"
#include "onnx/model_test.h"
#include "session/session.h"

// -- observing ---------------------------------------------------------------

static lb_service_options service;
static lb_session_options session;
static int highest_log_level;  // the highest level of a line of the log

lb_status __real_lb_service_new(const lb_service_options *o, lb_service **out);
lb_status __wrap_lb_service_new(const lb_service_options *o, lb_service **out);
lb_status __wrap_lb_service_new(const lb_service_options *o, lb_service **out) {
  service = *o;
  return __real_lb_service_new(o, out);
}

lb_status __real_lb_session_new(lb_graph *g, const lb_session_options *o,
                                lb_session **out);
lb_status __wrap_lb_session_new(lb_graph *g, const lb_session_options *o,
                                lb_session **out);
lb_status __wrap_lb_session_new(lb_graph *g, const lb_session_options *o,
                                lb_session **out) {
  session = *o;
  return __real_lb_session_new(g, o, out);
}

static void note_line(void *user, int level, const char *line) {
  (void)user;
  (void)line;
  if (level > highest_log_level) highest_log_level = level;
}

typedef struct options {
  limber_runtime_options runtime;
  limber_session_options session;
  limber_attr *attr;
} options;

typedef struct bench {
  limber_runtime *runtime;
  limber_session *session;
} bench;

// -- settings ----------------------------------------------------------------

typedef void set_fn(options *o, int value);
#define SETTER(name, statement) \
  static void name(options *o, int value) { statement; }
SETTER(set_threads, o->runtime.threads = value)
SETTER(set_log, o->runtime.log_level = value)
SETTER(set_capacity, o->runtime.cache_capacity = (uint64_t)value)
SETTER(set_compile, o->runtime.compile = value)
SETTER(set_session_compile, o->session.compile = value)
SETTER(set_ops, o->runtime.compile_ops = value)
SETTER(set_session_ops, o->session.compile_ops = value)
SETTER(set_compile_threshold, o->runtime.compile_threshold = value)
SETTER(set_deterministic, o->session.deterministic = value)
SETTER(set_skip, o->session.skip = value)
SETTER(set_prefer, o->session.prefer_reusable_kernels = value)
SETTER(set_attr_deterministic, limber_attr_set_deterministic(o->attr, value))
SETTER(set_attr_prefer,
       limber_attr_set_hint_reusable_kernels(o->attr, value > 0))

typedef int see_fn(const bench *b);

static int see_threads(const bench *b) {
  return limber_runtime_threads(b->runtime);
}

static int see_log(const bench *b) {
  (void)b;
  return highest_log_level;
}

static int see_capacity(const bench *b) {
  limber_runtime_info info = {.size = sizeof info};
  limber_cache_stats stats = {.size = sizeof stats};
  if (limber_runtime_describe(b->runtime, &info) ||
      limber_get_cache_stats(b->runtime, &stats) ||
      stats.capacity != info.cache_capacity)
    return -1;
  return (int)info.cache_capacity;
}

// The effect of the setting, and what the statistics report about it.
static int see_prefer(const bench *b) {
  limber_stats stats = {.size = sizeof stats};
  if (limber_session_stats(b->session, &stats) ||
      session.reusable != (stats.prefer_reusable_kernels != 0))
    return -1;
  return session.reusable;
}

#define SEER(name, expression)      \
  static int name(const bench *b) { \
    (void)b;                        \
    return (int)(expression);       \
  }
SEER(see_background, !session.quiet)
SEER(see_critical, session.critical)
SEER(see_compile_threshold, session.compile_threshold)
SEER(see_deterministic, session.deterministic)
SEER(see_skip, !session.no_skip)
SEER(see_reusable, session.reusable)
SEER(see_service, service.builder.slots != NULL)
SEER(see_order, service.fifo)
SEER(see_trials, service.trials)
SEER(see_unpaced, service.unpaced)

typedef struct choice {
  const char *text;  // the value of the variable
  int option;        // the value of the option; 0: there is none
  int seen;
} choice;

typedef struct setting {
  const char *variable;
  set_fn *in_runtime, *in_session;  // NULL: there is none
  see_fn *see;
  choice choices[2];
  int by_default, if_wrong;  // the value observed then
  bool primitive;            // in_session sets a primitive's attribute
} setting;

#define MB (1 << 20)

static const setting settings[] = {
    {"LIMBER_THREADS",
     set_threads,
     NULL,
     see_threads,
     {{"3", 3, 3}, {"5", 5, 5}},
     0,
     0,
     false},
    {"LIMBER_LOG",
     set_log,
     NULL,
     see_log,
     {{"error", LIMBER_LOG_ERROR, 0}, {"info", LIMBER_LOG_INFO, 3}},
     2,
     2,
     false},
    {"LIMBER_CACHE_CAPACITY",
     set_capacity,
     NULL,
     see_capacity,
     {{"1M", MB, MB}, {"2M", 2 * MB, 2 * MB}},
     64 * MB,
     64 * MB,
     false},
    {"LIMBER_COMPILE",
     set_compile,
     set_session_compile,
     see_background,
     {{"background", LIMBER_COMPILE_BACKGROUND, 1},
      {"settle", LIMBER_COMPILE_SETTLE, 0}},
     1,
     1,
     false},
    {"LIMBER_COMPILE_OPS",
     set_ops,
     set_session_ops,
     see_critical,
     {{"all", LIMBER_COMPILE_ALL, 0}, {"critical", LIMBER_COMPILE_CRITICAL, 1}},
     0,
     0,
     false},
    {"LIMBER_COMPILE_THRESHOLD",
     set_compile_threshold,
     NULL,
     see_compile_threshold,
     {{"3", 3, 3}, {"7", 7, 7}},
     0,
     0,
     false},
    {"LIMBER_DETERMINISTIC",
     NULL,
     set_deterministic,
     see_deterministic,
     {{"0", 0, 0}, {"1", 1, 1}},
     0,
     0,
     false},
    {"LIMBER_SKIP",
     NULL,
     set_skip,
     see_skip,
     {{"on", 1, 1}, {"off", -1, 0}},
     1,
     1,
     false},
    {"LIMBER_PREFER_REUSABLE_KERNELS",
     NULL,
     set_prefer,
     see_prefer,
     {{"0", -1, 0}, {"1", 1, 1}},
     PREFER_REUSABLE,
     1,
     false},
    {"LIMBER_JIT",
     NULL,
     NULL,
     see_service,
     {{"off", 0, 0}, {"process", 0, 1}},
     1,
     1,
     false},
    {"LIMBER_COMPILE_ORDER",
     NULL,
     NULL,
     see_order,
     {{"priority", 0, 0}, {"fifo", 0, 1}},
     0,
     0,
     false},
    {"LIMBER_KERNEL_TRIALS",
     NULL,
     NULL,
     see_trials,
     {{"off", 0, 0}, {"on", 0, 1}},
     1,
     1,
     false},
    {"LIMBER_COMPILE_PACE",
     NULL,
     NULL,
     see_unpaced,
     {{"on", 0, 0}, {"off", 0, 1}},
     0,
     0,
     false},
    {"LIMBER_COMPILE_OPS",
     set_ops,
     NULL,
     see_critical,
     {{"all", LIMBER_COMPILE_ALL, 0}, {"critical", LIMBER_COMPILE_CRITICAL, 1}},
     0,
     0,
     true},
    {"LIMBER_DETERMINISTIC",
     NULL,
     set_attr_deterministic,
     see_deterministic,
     {{"0", 0, 0}, {"1", 1, 1}},
     0,
     0,
     true},
    {"LIMBER_PREFER_REUSABLE_KERNELS",
     NULL,
     set_attr_prefer,
     see_reusable,
     {{"0", -1, 0}, {"1", 1, 1}},
     PREFER_REUSABLE,
     1,
     true},
};

// -- one combination ---------------------------------------------------------

enum { NOTHING = -1, WRONG = 2 };  // in addition to the two choices

typedef struct said {
  int environment, runtime, session;  // choices
} said;

static pb exp_model(void) {
  pb g = {0};
  pb_msg(&g, 1, pb_node("Exp", "exp", "x", "y"));
  pb_str(&g, 2, "small");
  pb_msg(&g, 11, pb_value("x", T_FLOAT, "n,3"));
  pb_msg(&g, 12, pb_value("y", T_FLOAT, "n,3"));
  return pb_model(g, 17);
}

static bool open_session(bench *b, const options *o) {
  pb model = exp_model();
  return !limber_session_open_memory(b->runtime, model.b.data, model.b.len,
                                     &o->session, &b->session);
}

static bool open_primitive(const bench *b, const options *o) {
  limber_primitive_desc d = {.size = sizeof d,
                             .kind = LIMBER_ELTWISE,
                             .alg = LIMBER_ALG_EXP,
                             .in[0] = {.dtype = LIMBER_F32, .rank = 1}};
  limber_primitive *p;
  d.in[0].dims[0] = 3;
  return !limber_primitive_create(b->runtime, &d, o->attr, &p);
}

static void say(const setting *s, const said *what, options *o) {
  const int e = what->environment;
  if (e == WRONG) setenv(s->variable, "unheard", 1);
  if (e == 0 || e == 1) setenv(s->variable, s->choices[e].text, 1);
  if (what->runtime != NOTHING)
    s->in_runtime(o, s->choices[what->runtime].option);
  if (what->session != NOTHING)
    s->in_session(o, s->choices[what->session].option);
}

// Runs in the child and returns the observed value, which the parent reads from
// a pipe.
static int see(const setting *s, const said *what) {
  options o = {.runtime = LIMBER_RUNTIME_OPTIONS_INIT,
               .session = LIMBER_SESSION_OPTIONS_INIT};
  bench b = {0};
  unsetenv(s->variable);
  setenv("LIMBER_CACHE_DIR", "off", 1);
  setenv("LIMBER_JIT_PATH", "/nowhere/limber-jit", 1);  // starts no worker
  if (s->see == see_log) setenv("LIMBER_COMPILE_THRESHOLD", "a warning", 1);
  o.runtime.log = note_line;
  if (s->see != see_threads) o.runtime.threads = 1;
  if (limber_attr_create(&o.attr)) return -2;
  say(s, what, &o);
  if (limber_runtime_create(&o.runtime, &b.runtime)) return -3;
  if (s->primitive ? !open_primitive(&b, &o) : !open_session(&b, &o)) return -4;
  return s->see(&b);
}

static int see_apart(const setting *s, const said *what) {
  int ends[2], seen = -5;
  assert_int_equal(pipe(ends), 0);
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    seen = see(s, what);
    _exit(write(ends[1], &seen, sizeof seen) != sizeof seen);
  }
  close(ends[1]);
  assert_int_equal(read(ends[0], &seen, sizeof seen), sizeof seen);
  close(ends[0]);
  assert_int_equal(waitpid(child, NULL, 0), child);
  return seen;
}

static int expected(const setting *s, const said *what) {
  int by = what->session != NOTHING   ? what->session
           : what->runtime != NOTHING ? what->runtime
                                      : what->environment;
  if (by == WRONG) return s->if_wrong;
  return by == NOTHING ? s->by_default : s->choices[by].seen;
}

static const char *text_of(const setting *s, int which) {
  return which == NOTHING ? "-"
         : which == WRONG ? "(wrong)"
                          : s->choices[which].text;
}

static void check(const setting *s, const said *what) {
  int seen = see_apart(s, what), want = expected(s, what);
  if (s->see == see_threads && want == 0) {  // as many as there are processors
    assert_true(seen > 0);
    return;
  }
  if (seen != want)
    print_error("%s%s: environment %s, runtime %s, session %s: %d, not %d\n",
                s->variable, s->primitive ? " of a primitive" : "",
                text_of(s, what->environment), text_of(s, what->runtime),
                text_of(s, what->session), seen, want);
  assert_int_equal(seen, want);
}

static bool can_say(const setting *s, set_fn *where, int which) {
  return which == NOTHING || (where && s->choices[which].option);
}

static void the_most_specific_setting_decides(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
    const setting *s = &settings[i];
    said what;
    for (what.environment = NOTHING; what.environment <= WRONG;
         what.environment++)
      for (what.runtime = NOTHING; what.runtime < 2; what.runtime++)
        for (what.session = NOTHING; what.session < 2; what.session++)
          if (can_say(s, s->in_runtime, what.runtime) &&
              can_say(s, s->in_session, what.session))
            check(s, &what);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_most_specific_setting_decides),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
