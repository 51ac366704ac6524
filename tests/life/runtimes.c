// tests/life/runtimes.c -- A program with two runtimes, with different numbers
// of threads, and one model.
//
//   life_runtimes MODEL SHAPE
//
// Runs the model in both, waits for kernels in the first, and prints for each
// runtime the number of steps on compiled and on other kernels, of kernels
// requested and of compile events; then whether both have the same cache
// statistics. tests/python/test_shared.py checks the rest.
#include <limber/limber.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct side {
  limber_runtime *runtime;
  limber_session *session;
  int compiled, others, events;
} side;

static void check(limber_status st) {
  if (!st) return;
  fprintf(stderr, "life_runtimes: %s\n", limber_last_error());
  exit(1);
}

static void hear(void *user, const limber_event *e) {
  side *s = user;
  s->events += !strcmp(e->name, "kernel_compiled");
}

static void count_step(void *user, const limber_step *step) {
  side *s = user;
  if (!strcmp(step->tier, "reusable") || !strcmp(step->tier, "specialised"))
    s->compiled++;
  else
    s->others += *step->kernel != 0;
}

static void open_side(side *s, int threads, const char *model) {
  limber_runtime_options o = LIMBER_RUNTIME_OPTIONS_INIT;
  o.threads = threads;
  o.event = hear;
  o.event_user = s;
  check(limber_runtime_create(&o, &s->runtime));
  check(limber_session_open(s->runtime, model, NULL, &s->session));
}

static limber_tensor parse(const char *text) {
  limber_tensor t = {.dtype = LIMBER_F32};
  size_t count = 1;
  for (char *end; *text && t.rank < LIMBER_MAX_RANK; text = end) {
    t.dims[t.rank++] = strtoll(text, &end, 10);
    count *= (size_t)t.dims[t.rank - 1];
    if (*end == 'x') end++;
  }
  t.data = calloc(count, sizeof(float));
  return t;
}

static void run(side *s, const limber_tensor *in) {
  limber_tensor out = {0};
  check(limber_session_run(s->session, in, 1, &out, 1, NULL));
  limber_tensor_free(&out);
}

static void report(side *s, const limber_tensor *in) {
  limber_tensor out = {0};
  limber_stats stats = {.size = sizeof stats};
  check(limber_session_profile(s->session, in, 1, &out, 1, count_step, s));
  limber_tensor_free(&out);
  check(limber_session_stats(s->session, &stats));
  limber_runtime_flush(s->runtime);
  printf("%d %d %llu %d\n", s->compiled, s->others,
         (unsigned long long)stats.kernels_requested, s->events);
}

static void compare(const side *s) {
  limber_cache_stats a = {.size = sizeof a}, b = {.size = sizeof b};
  check(limber_get_cache_stats(s[0].runtime, &a));
  check(limber_get_cache_stats(s[1].runtime, &b));
  printf("%s %llu\n", memcmp(&a, &b, sizeof a) ? "differ" : "same",
         (unsigned long long)a.worker.hits);
}

int main(int argc, char **argv) {
  static side sides[2];
  if (argc < 3) return 2;
  limber_tensor in = parse(argv[2]);
  for (int i = 0; i < 2; i++) open_side(&sides[i], i + 1, argv[1]);
  for (int i = 0; i < 2; i++) run(&sides[i], &in);
  check(limber_session_settle(sides[0].session, 600));
  for (int i = 0; i < 2; i++) report(&sides[i], &in);
  compare(sides);
  for (int i = 0; i < 2; i++) {
    limber_session_close(sides[i].session);
    limber_runtime_destroy(sides[i].runtime);
  }
  free(in.data);
  return 0;
}
