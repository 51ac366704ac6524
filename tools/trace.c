// tools/trace.c -- collects events and writes them in the Chrome trace event
// format.
#include "trace.h"

#include <string.h>

#include "json.h"

// The tracks of the trace. Steps have one track per tier, from STEPS on.
enum { REQUESTS = 1, COMPILES, DECISIONS, STEPS };

static const char *const tiers[] = {"reference", "pack", "reusable",
                                    "specialised", "fused"};
enum { TIERS = sizeof tiers / sizeof *tiers };

static int tier_track(const char *tier) {
  int t = 0;
  while (t < TIERS - 1 && strcmp(tier, tiers[t])) t++;
  return STEPS + t;
}

static int event_track(const char *name) {
  if (!strncmp(name, "run_", 4)) return REQUESTS;
  if (!strcmp(name, "kernel_compiled")) return COMPILES;
  return DECISIONS;
}

static double us(int64_t ns) { return (double)ns * 1e-3; }

static void add(trace *t, json_t *event) {
  pthread_mutex_lock(&t->lock);
  json_array_append_new(t->events, event);
  pthread_mutex_unlock(&t->lock);
}

// An event with a duration becomes a complete event ("X"), any other an instant
// event ("i").
static void add_timed(trace *t, int track, const char *category, json_t *name,
                      const int64_t span[2], json_t *args) {
  json_t *e =
      json_pack("{s:o, s:s, s:s, s:i, s:i, s:f, s:o}", "name", name, "cat",
                category, "ph", span[1] > span[0] ? "X" : "i", "pid", 1, "tid",
                track, "ts", us(span[0]), "args", args);
  if (span[1] > span[0]) {
    json_object_set_new(e, "dur", json_real(us(span[1] - span[0])));
  } else {
    json_object_set_new(e, "s", json_string("t"));
  }
  add(t, e);
}

void trace_event(void *user, const limber_event *e) {
  json_t *args = json_pack("{s:s, s:s, s:o, s:I, s:i}", "reason", e->reason,
                           "because", e->reason_text, "of", text_json(e->text),
                           "value", (json_int_t)e->value, "thread", e->thread);
  int64_t span[2] = {e->start_ns, e->end_ns};
  add_timed(user, event_track(e->name), "event", json_string(e->name), span,
            args);
}

void trace_step(void *user, const limber_step *s) {
  json_t *args = json_pack(
      "{s:o, s:s, s:s, s:s, s:s, s:I, s:I}", "step", text_json(s->name), "tier",
      s->tier, "reason", s->reason, "because", s->reason_text, "kernel",
      s->kernel, "bytes", (json_int_t)s->bytes, "flops", (json_int_t)s->flops);
  int64_t span[2] = {s->start_ns, s->end_ns};
  add_timed(user, tier_track(s->tier), s->tier, json_string(s->op), span, args);
}

// -- the file ----------------------------------------------------------------

static void name_track(trace *t, int track, const char *name) {
  add(t, json_pack("{s:s, s:s, s:i, s:i, s:{s:s}}", "name", "thread_name", "ph",
                   "M", "pid", 1, "tid", track, "args", "name", name));
  add(t, json_pack("{s:s, s:s, s:i, s:i, s:{s:i}}", "name", "thread_sort_index",
                   "ph", "M", "pid", 1, "tid", track, "args", "sort_index",
                   track));
}

static void name_tracks(trace *t) {
  static const char *const steps[TIERS] = {
      "steps: reference", "steps: pack", "steps: reusable",
      "steps: specialised", "steps: fused"};
  add(t, json_pack("{s:s, s:s, s:i, s:{s:s}}", "name", "process_name", "ph",
                   "M", "pid", 1, "args", "name", "limber"));
  name_track(t, REQUESTS, "requests");
  name_track(t, COMPILES, "compile jobs");
  name_track(t, DECISIONS, "decisions");
  for (int i = 0; i < TIERS; i++) name_track(t, STEPS + i, steps[i]);
}

bool trace_begin(trace *t, problem *p) {
  t->events = json_array();
  if (!t->events || pthread_mutex_init(&t->lock, NULL))
    return fail(p, EXIT_INTERNAL, "out of memory");
  name_tracks(t);
  return true;
}

bool trace_write(trace *t, const char *path, problem *p) {
  json_t *root = json_pack("{s:O, s:s}", "traceEvents", t->events,
                           "displayTimeUnit", "ns");
  bool good = root && !json_dump_file(root, path, JSON_COMPACT);
  json_decref(root);
  return good || fail(p, EXIT_BAD, "--trace: cannot write '%s'", path);
}

void trace_fini(trace *t) {
  if (!t->events) return;
  json_decref(t->events);
  pthread_mutex_destroy(&t->lock);
  *t = (trace){.events = NULL};
}
