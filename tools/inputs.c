// tools/inputs.c -- the inputs of runs, from options.
#include "inputs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "feed.h"

static const limber_tensor *given(const inputs *in, const char *name) {
  for (size_t i = 0; i < in->n_given; i++)
    if (!strcmp(in->feeds[i].name, name)) return &in->feeds[i];
  return NULL;
}

static bool parse_given(const inputs_options *o, inputs *in, problem *p) {
  while (in->n_given < o->given.n) {
    limber_tensor *feed = &in->feeds[in->n_given];
    if (!feed_parse(o->given.items[in->n_given], in->seed + in->n_given, feed,
                    p))
      return false;
    in->n_feeds = ++in->n_given;
    if (feed_find_input(feed, in->infos, in->n, p) == in->n) return false;
  }
  return true;
}

// Reports all missing inputs at once, as options that can be pasted.
static bool check_given(const inputs *in, problem *p) {
  size_t missing = 0;
  char list[3000] = "", one[512];
  for (size_t i = 0; i < in->n; i++) {
    if (given(in, in->infos[i].name)) continue;
    feed_suggest(&in->infos[i], one, sizeof one);
    size_t used = strlen(list);
    snprintf(list + used, sizeof list - used, " %s", one);
    missing++;
  }
  if (!missing) return true;
  return fail(p, EXIT_BAD, "%zu input%s missing; give %s a file, or use%s",
              missing, missing > 1 ? "s are" : " is",
              missing > 1 ? "each" : "it", list);
}

static bool read_shapes(const inputs_options *o, inputs *in, problem *p) {
  const limber_tensor **fixed = calloc(in->n + 1, sizeof *fixed);
  if (!fixed) return fail(p, EXIT_INTERNAL, "out of memory");
  for (size_t i = 0; i < in->n; i++) fixed[i] = given(in, in->infos[i].name);
  shapes_of of = {.inputs = in->infos,
                  .n = in->n,
                  .fixed = fixed,
                  .shapes = o->shapes,
                  .dims = o->dims};
  bool good = shapes_new(&of, &in->shapes, p);
  free(fixed);
  return good;
}

bool inputs_read(const limber_session *session, const inputs_options *o,
                 inputs *out, problem *p) {
  out->n = limber_session_inputs(session, &out->infos);
  out->seed = (uint64_t)o->seed;
  out->feeds = calloc(o->given.n + out->n + 1, sizeof *out->feeds);
  if (!out->feeds) return fail(p, EXIT_INTERNAL, "out of memory");
  if (!parse_given(o, out, p)) return false;
  if (o->shapes || o->dims) return read_shapes(o, out, p);
  return check_given(out, p);
}

uint64_t inputs_count(const inputs *in) {
  return in->shapes ? shapes_count(in->shapes) : 1;
}

static void free_feeds(inputs *in, size_t first) {
  while (in->n_feeds > first) feed_free(&in->feeds[--in->n_feeds]);
}

bool inputs_select(inputs *in, uint64_t i, problem *p) {
  if (!in->shapes) return true;
  limber_tensor *like = calloc(in->n + 1, sizeof *like);
  if (!like) return fail(p, EXIT_INTERNAL, "out of memory");
  free_feeds(in, in->n_given);
  shapes_get(in->shapes, i, like);
  bool good = true;
  for (size_t k = 0; good && k < in->n; k++) {
    if (given(in, in->infos[k].name)) continue;
    good = feed_random(&like[k], in->seed + in->n_feeds,
                       &in->feeds[in->n_feeds], p);
    in->n_feeds += good;
  }
  free(like);
  return good;
}

void inputs_fini(inputs *in) {
  if (in->feeds) free_feeds(in, 0);
  free(in->feeds);
  shapes_free(in->shapes);
}
