// store/store.c -- a store: searches its layers in order and keeps statistics.
#include "store/store.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "store/store_internal.h"

// -- state shared by layers ---------------------------------------------------

lb_status lb_core_load_sqlite(lb_store_core *c) {
  if (c->loaded) return LB_OK;
  LB_TRY(lb_sqlite_load(&c->sqlite));
  c->loaded = true;
  return LB_OK;
}

lb_log_level lb_core_level(lb_store_core *c, unsigned kind) {
  bool first = !(c->warned & 1u << kind);
  c->warned |= 1u << kind;
  return first ? LB_LOG_WARN : LB_LOG_DEBUG;
}

void lb_core_warn(lb_store_core *c, unsigned kind, lb_status st) {
  lb_log_line(c->log, lb_core_level(c, kind), "kernels on disk: %s",
              lb_status_message(st));
}

void lb_store_hit_fini(lb_store_hit *f) {
  lb_blob_fini(&f->object);
  lb_blob_fini(&f->meta);
}

// -- creation -----------------------------------------------------------------

#define IMAGE_WARNING 16  // lb_core_warn's kind for the first read-only layer

static void before_fork(lb_lock *l) {
  lb_store *s = (lb_store *)l;
  for (size_t i = 0; i < s->n_layers; i++)
    s->layers[i]->ops->before_fork(s->layers[i]);
}

static void in_child(lb_lock *l) {
  lb_store *s = (lb_store *)l;
  for (size_t i = 0; i < s->n_layers; i++)
    if (s->layers[i]->ops->in_child) s->layers[i]->ops->in_child(s->layers[i]);
}

static lb_status add_layers(lb_store *s, const lb_store_options *o) {
  if (o->directory) {
    LB_TRY(lb_store_dir_new(&s->core, o, &s->directory));
    s->layers[s->n_layers++] = &s->directory->base;
  }
  for (size_t i = 0; i < o->n_layers; i++) {
    lb_image *m;
    LB_TRY(
        lb_image_new(&s->core, o->layers[i], IMAGE_WARNING + (unsigned)i, &m));
    if (i == 0) s->first = m;
    s->layers[s->n_layers++] = &m->base;
  }
  return LB_OK;
}

static void free_layers(lb_store *s) {
  for (size_t i = 0; i < s->n_layers; i++)
    s->layers[i]->ops->free(s->layers[i]);
  free(s);
}

lb_status lb_store_new(const lb_store_options *o, lb_store **out) {
  *out = NULL;
  if (o->n_layers > LB_STORE_MAX_LAYERS)
    return lb_error(LB_INVALID,
                    "%zu read-only layers are given, but at most %d are "
                    "allowed",
                    o->n_layers, LB_STORE_MAX_LAYERS);
  lb_store *s = calloc(1, sizeof *s);
  if (!s) return lb_oom();
  s->core.log = o->log;
  lb_status st = add_layers(s, o);
  if (!lb_failed(st))
    st = lb_lock_init_hooked(&s->lock, (lb_fork_hooks){before_fork, in_child});
  if (lb_failed(st)) {
    free_layers(s);
  } else {
    *out = s;
  }
  return st;
}

void lb_store_free(lb_store *s) {
  if (!s) return;
  lb_status_drop(lb_store_flush(s));
  lb_lock_fini(&s->lock);
  free_layers(s);
}

// The writable layer, or NULL.
static lb_layer *writable(const lb_store *s) {
  lb_layer *l = s->n_layers ? s->layers[0] : NULL;
  return l && l->ops->put ? l : NULL;
}

lb_status lb_store_no_directory(void) {
  return lb_error(LB_IO, "the store has no directory to write to");
}

lb_status lb_store_check(lb_store *s) {
  lb_lock_take(&s->lock);
  lb_status st =
      s->directory ? lb_store_dir_open(s->directory) : lb_store_no_directory();
  lb_lock_give(&s->lock);
  return st;
}

// -- entries ------------------------------------------------------------------

static uint64_t ns_since(double start) {
  return (uint64_t)((lb_clock_seconds() - start) * 1e9);
}

bool lb_store_get(lb_store *s, lb_hash128 key, lb_span request,
                  lb_store_hit *out) {
  bool hit = false;
  *out = (lb_store_hit){0};
  lb_lock_take(&s->lock);
  double start = lb_clock_seconds();
  for (size_t i = 0; !hit && i < s->n_layers; i++)
    hit = s->layers[i]->ops->get(s->layers[i], key, request, out);
  s->core.stats.misses += !hit;
  s->core.stats.get_ns += ns_since(start);
  lb_lock_give(&s->lock);
  return hit;
}

lb_status lb_store_put(lb_store *s, const lb_store_entry *e) {
  lb_lock_take(&s->lock);
  double start = lb_clock_seconds();
  lb_layer *l = writable(s);
  lb_status st = l ? l->ops->put(l, e) : lb_store_no_directory();
  s->core.stats.put_ns += ns_since(start);
  lb_lock_give(&s->lock);
  return st;
}

lb_status lb_store_drop(lb_store *s, lb_hash128 key) {
  lb_lock_take(&s->lock);
  lb_layer *l = writable(s);
  lb_status st = l ? l->ops->drop(l, key) : lb_store_no_directory();
  lb_lock_give(&s->lock);
  return st;
}

lb_status lb_store_flush(lb_store *s) {
  lb_lock_take(&s->lock);
  lb_layer *l = writable(s);
  lb_status st = l ? l->ops->flush(l) : LB_OK;
  lb_lock_give(&s->lock);
  return st;
}

// -- leases and trial results -------------------------------------------------

lb_lease_state lb_store_lease(lb_store *s, lb_hash128 key, double seconds) {
  lb_store_stats *stats = &s->core.stats;
  lb_lock_take(&s->lock);
  lb_layer *l = writable(s);
  lb_lease_state lease = l ? l->ops->lease(l, key, seconds) : LB_LEASE_GRANTED;
  *(lease == LB_LEASE_GRANTED ? &stats->leases : &stats->refusals) += 1;
  lb_lock_give(&s->lock);
  return lease;
}

void lb_store_release(lb_store *s, lb_hash128 key) {
  lb_lock_take(&s->lock);
  lb_layer *l = writable(s);
  if (l) l->ops->release(l, key);
  lb_lock_give(&s->lock);
}

lb_trial_result lb_store_trial_result(lb_store *s, lb_hash128 key,
                                      const char *processor) {
  lb_lock_take(&s->lock);
  lb_trial_result v =
      s->directory ? lb_store_dir_trial_result(s->directory, key, processor)
                   : LB_TRIAL_RESULT_NONE;
  lb_lock_give(&s->lock);
  return v;
}

lb_status lb_store_put_trial_result(lb_store *s, lb_hash128 key,
                                    const char *processor,
                                    lb_trial_result result) {
  lb_lock_take(&s->lock);
  lb_status st = s->directory ? lb_store_dir_put_trial_result(s->directory, key,
                                                              processor, result)
                              : lb_store_no_directory();
  lb_lock_give(&s->lock);
  return st;
}

void lb_store_get_stats(lb_store *s, lb_store_stats *out) {
  int64_t n = 0;
  lb_lock_take(&s->lock);
  *out = s->core.stats;
  if (s->directory && lb_store_dir_ready(s->directory)) {
    lb_db *db = &s->directory->db;
    if (!lb_db_query_int(db, LB_Q_COUNT_ROWS, &n)) out->entries = (uint64_t)n;
    if (!lb_db_bytes(db, &n)) out->bytes = (uint64_t)n;
  }
  lb_lock_give(&s->lock);
}
