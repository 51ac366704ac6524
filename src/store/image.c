// store/image.c -- a read-only layer: a file of kernels that no process writes.
#include "store/image.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "store/trust.h"

static lb_image *to_image(lb_layer *l) { return (lb_image *)l; }

static lb_status open_image(lb_image *m) {
  bool exists;
  char *inside = NULL;
  if (asprintf(&inside, "%s/%s", m->path, LB_STORE_FILE) < 0) return lb_oom();
  const char *path = access(inside, F_OK) ? m->path : inside;
  lb_status st = lb_core_load_sqlite(m->base.core);
  if (!lb_failed(st)) st = lb_trust_file(path, true, &exists);
  if (!lb_failed(st) && !exists)
    st = lb_error(LB_IO, "the read-only layer '%s' does not exist", path);
  if (!lb_failed(st))
    st = lb_db_open_immutable(&m->base.core->sqlite, path, &m->db);
  if (lb_failed(st)) lb_db_close(&m->db);
  free(inside);
  return st;
}

bool lb_image_ready(lb_image *m) {
  if (m->open_tried) return m->db.handle != NULL;
  m->open_tried = true;
  lb_status st = open_image(m);
  if (lb_failed(st)) {
    m->base.core->stats.failures++;
    lb_core_warn(m->base.core, m->kind, st);
  }
  lb_status_drop(st);
  return m->db.handle != NULL;
}

static bool image_get(lb_layer *l, lb_hash128 key, lb_span request,
                      lb_store_hit *out) {
  lb_image *m = to_image(l);
  lb_store_stats *stats = &l->core->stats;
  lb_row_info row = {0};
  if (!lb_image_ready(m)) return false;
  int rc = lb_db_find(&m->db, key, request, out, &row);
  if (rc) {
    lb_status st = lb_db_error(&m->db, rc, m->path);
    lb_core_warn(l->core, m->kind, st);
    lb_status_drop(st);
    *(lb_db_fault(rc) == LB_FAULT_CORRUPT ? &stats->corrupt
                                          : &stats->failures) += 1;
  }
  stats->hits_readonly += row.hit;
  return row.hit;
}

static void image_before_fork(lb_layer *l) {
  lb_image *m = to_image(l);
  lb_db_close(&m->db);
  m->open_tried = false;
}

static void image_free(lb_layer *l) {
  lb_image *m = to_image(l);
  lb_db_close(&m->db);
  free(m->path);
  free(m);
}

static const lb_layer_ops image_ops = {
    .get = image_get,
    .before_fork = image_before_fork,
    .free = image_free,
};

lb_status lb_image_new(lb_store_core *core, const char *path, unsigned kind,
                       lb_image **out) {
  lb_image *m = *out = calloc(1, sizeof *m);
  if (!m) return lb_oom();
  m->base = (lb_layer){&image_ops, core};
  m->kind = kind;
  m->path = strdup(path);
  if (m->path) return LB_OK;
  free(m);
  *out = NULL;
  return lb_oom();
}
