// store/totals.c -- statistics of a store summed over all processes, in its
// file.
//
// Each process adds the counts since its last flush. The counts that a killed
// process has not flushed are lost.
#include "store/store_internal.h"

#define COUNTER(name) \
  { #name, offsetof(lb_store_stats, name) }

static const struct counter {
  const char *name;
  size_t at;  // in lb_store_stats
} counters[] = {
    COUNTER(hits),       COUNTER(hits_readonly), COUNTER(misses),
    COUNTER(insertions), COUNTER(evictions),     COUNTER(corrupt),
    COUNTER(rebuilds),   COUNTER(salvaged),      COUNTER(failures),
    COUNTER(leases),     COUNTER(refusals),      COUNTER(get_ns),
    COUNTER(put_ns),
};

enum { N = sizeof counters / sizeof *counters };

static uint64_t count(const lb_store_stats *s, size_t i) {
  return *(const uint64_t *)((const char *)s + counters[i].at);
}

static int64_t unwritten(const lb_store_dir *f, size_t i) {
  return (int64_t)(count(&f->base.core->stats, i) -
                   count(&f->written_stats, i));
}

// Nothing is pending unless the file was opened for writing.
bool lb_totals_pending(const lb_store_dir *f) {
  for (size_t i = 0; f->writable && i < N; i++)
    if (unwritten(f, i)) return true;
  return false;
}

int lb_totals_write(lb_store_dir *f) {
  int rc = SQLITE_OK;
  for (size_t i = 0; !rc && i < N; i++) {
    if (!unwritten(f, i)) continue;
    sqlite3_stmt *stmt = lb_db_stmt(&f->db, LB_Q_ADD, &rc);
    if (!stmt) return rc;
    f->db.q->bind_text(stmt, 1, counters[i].name, -1, SQLITE_STATIC);
    f->db.q->bind_int64(stmt, 2, unwritten(f, i));
    rc = lb_db_run(&f->db, LB_Q_ADD);
  }
  return rc;
}

static int read_total(lb_store_dir *f, size_t i, lb_store_stats *out) {
  int rc;
  int64_t n;
  sqlite3_stmt *stmt = lb_db_stmt(&f->db, LB_Q_TOTAL, &rc);
  if (!stmt) return rc;
  f->db.q->bind_text(stmt, 1, counters[i].name, -1, SQLITE_STATIC);
  rc = lb_db_query_int(&f->db, LB_Q_TOTAL, &n);
  *(uint64_t *)((char *)out + counters[i].at) = (uint64_t)n;
  return rc;
}

lb_status lb_store_totals(lb_store *s, lb_store_stats *out) {
  int rc = SQLITE_OK;
  lb_status st = LB_OK;
  lb_store_dir *f = s->directory;
  *out = (lb_store_stats){0};
  lb_lock_take(&s->lock);
  if (f && lb_store_dir_ready(f))
    for (size_t i = 0; !rc && i < N; i++) rc = read_total(f, i, out);
  if (rc) st = lb_db_error(&f->db, rc, f->path);
  lb_lock_give(&s->lock);
  return st;
}
