// store/directory.c -- one SQLite file: opening, rebuilding, reading, writing.
//
// Failed SQLite calls go to `lb_store_dir_handle_fault`, which counts them,
// warns once of each kind, and rebuilds a corrupt file.
#include "store/directory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "store/repair.h"
#include "store/trust.h"

#define TOUCH_EVERY 60        // seconds: resolution of last-use times
#define MAX_REBUILDS 3        // per store; more mean that the disk is faulty
#define BUSY_BACKOFF 1.0      // seconds without attempts after a lock timeout
#define OPEN_RETRY 10.0       // seconds until a failed open is tried again
#define EXCLUSIVE_TIMEOUT 10  // seconds to wait for another process's rebuild

static lb_store_dir *to_store_dir(lb_layer *l) { return (lb_store_dir *)l; }

// -- opening ------------------------------------------------------------------

static lb_status reopen(lb_store_dir *f);

// Call with the exclusive lock. `recover` false: the file is of an earlier
// version, and its rows are discarded.
static lb_status rebuild_exclusive(lb_store_dir *f, bool recover) {
  lb_repair_result done;
  if (lb_leases_rebuilds(&f->held) != f->generation) return LB_OK;
  if (f->base.core->stats.rebuilds >= MAX_REBUILDS) {
    f->disabled = true;
    return lb_error(LB_IO,
                    "'%s' was corrupt %d times; it is not used any more, check "
                    "the disk",
                    f->path, MAX_REBUILDS + 1);
  }
  int rc =
      lb_repair(&f->base.core->sqlite, f->path, f->temp_path, recover, &done);
  if (rc)
    return lb_error(LB_IO, "'%s' is corrupt and cannot be rebuilt (%s)",
                    f->path, f->base.core->sqlite.errstr(rc));
  lb_leases_count_rebuild(&f->held);
  f->base.core->stats.rebuilds++;
  f->base.core->stats.salvaged += done.recovered;
  f->base.core->stats.corrupt += done.lost;
  lb_log_line(f->base.core->log, lb_core_level(f->base.core, LB_FAULT_CORRUPT),
              recover ? "kernels on disk: '%s' was corrupt and has been "
                        "rebuilt: %llu entries recovered, %llu lost"
                      : "kernels on disk: '%s' was of an earlier version and "
                        "has been replaced",
              f->path, (unsigned long long)done.recovered,
              (unsigned long long)done.lost);
  return LB_OK;
}

// One process rebuilds; the processes that waited for it find a valid file.
lb_status lb_store_dir_rebuild(lb_store_dir *f, bool recover) {
  lb_db_close(&f->db);
  if (!lb_leases_lock_exclusive(&f->held, EXCLUSIVE_TIMEOUT))
    return lb_error(LB_IO,
                    "'%s' is corrupt or of an earlier version, and another "
                    "process has been rebuilding it for %d s",
                    f->path, EXCLUSIVE_TIMEOUT);
  lb_status st = rebuild_exclusive(f, recover);
  lb_leases_unlock_exclusive(&f->held);
  if (!lb_failed(st)) st = reopen(f);
  return st;
}

// If several processes start at once, one of them creates the tables.
static lb_status create(lb_store_dir *f) {
  lb_db_kind kind;
  int64_t version;
  if (!lb_leases_lock_exclusive(&f->held, EXCLUSIVE_TIMEOUT))
    return lb_error(LB_IO, "another process has been creating '%s' for %d s",
                    f->path, EXCLUSIVE_TIMEOUT);
  int rc = lb_db_identify(&f->db, &kind, &version);
  if (!rc && kind == LB_DB_EMPTY) rc = lb_db_create(&f->db, true);
  lb_leases_unlock_exclusive(&f->held);
  return rc ? lb_db_error(&f->db, rc, f->path) : LB_OK;
}

static lb_status open_by_kind(lb_store_dir *f, lb_db_kind kind,
                              int64_t version) {
  if (kind == LB_DB_LATER || kind == LB_DB_FOREIGN) {
    f->base.core->sqlite.db_config(f->db.handle,
                                   SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    return lb_db_kind_error(kind, version, f->path);
  }
  if (kind == LB_DB_CORRUPT || kind == LB_DB_EARLIER)
    return lb_store_dir_rebuild(f, kind == LB_DB_CORRUPT);
  if (kind == LB_DB_EMPTY) LB_TRY(create(f));
  int rc = lb_db_enable_wal(&f->db);
  return rc ? lb_db_error(&f->db, rc, f->path) : LB_OK;
}

static lb_status open_writable(lb_store_dir *f) {
  lb_db_kind kind = LB_DB_CORRUPT;
  int64_t version = 0;
  LB_TRY(lb_leases_open(&f->held, f->leases));
  f->generation = lb_leases_rebuilds(&f->held);
  f->writable = true;
  int rc = lb_db_open(&f->base.core->sqlite, f->path, LB_DB_WRITE, &f->db);
  if (!rc) rc = lb_db_identify(&f->db, &kind, &version);
  if (lb_db_fault(rc) == LB_FAULT_CORRUPT)
    kind = LB_DB_CORRUPT;
  else if (rc)
    return lb_db_error(&f->db, rc, f->path);
  return open_by_kind(f, kind, version);
}

static lb_status open_unwritable(lb_store_dir *f, bool exists) {
  f->writable = false;
  if (!exists)
    return lb_error(LB_IO, "'%s' cannot be written: no kernels are stored",
                    f->directory);
  LB_TRY(lb_db_open_immutable(&f->base.core->sqlite, f->path, &f->db));
  lb_log_line(f->base.core->log, lb_core_level(f->base.core, LB_FAULT_READONLY),
              "kernels on disk: '%s' cannot be written: its kernels are used, "
              "but none are added",
              f->directory);
  return LB_OK;
}

static lb_status reopen(lb_store_dir *f) {
  bool exists;
  LB_TRY(lb_core_load_sqlite(f->base.core));
  LB_TRY(lb_trust_directory(f->directory));
  LB_TRY(lb_trust_file(f->path, false, &exists));
  lb_db_close(&f->db);
  lb_status st = access(f->directory, W_OK) ? open_unwritable(f, exists)
                                            : open_writable(f);
  if (lb_failed(st)) lb_db_close(&f->db);
  return st;
}

// Errors that cannot go away by themselves disable the directory.
lb_status lb_store_dir_open(lb_store_dir *f) {
  if (f->db.handle) return LB_OK;
  lb_status st = reopen(f);
  lb_code code = lb_status_code(st);
  if (code == LB_INVALID || code == LB_UNSUPPORTED) f->disabled = true;
  if (lb_failed(st)) f->retry_at = lb_clock_seconds() + OPEN_RETRY;
  return st;
}

bool lb_store_dir_ready(lb_store_dir *f) {
  if (f->db.handle && lb_clock_seconds() >= f->retry_at) return true;
  if (f->disabled || lb_clock_seconds() < f->retry_at) return false;
  lb_status st = lb_store_dir_open(f);
  bool ok = !lb_failed(st);
  if (!ok) {
    f->base.core->stats.failures++;
    lb_core_warn(f->base.core, 8, st);
  }
  lb_status_drop(st);
  return ok;
}

// Ends a transaction that a failure left open.
static void roll_back(lb_store_dir *f) {
  if (!f->base.core->sqlite.get_autocommit(f->db.handle))
    lb_db_run(&f->db, LB_Q_ROLLBACK);
}

bool lb_store_dir_handle_fault(lb_store_dir *f, int rc, lb_status *out) {
  lb_fault fault = lb_db_fault(rc);
  bool retry = false;
  roll_back(f);
  *out = lb_db_error(&f->db, rc, f->path);
  f->base.core->stats.failures++;
  if (fault == LB_FAULT_BUSY) f->retry_at = lb_clock_seconds() + BUSY_BACKOFF;
  if (fault == LB_FAULT_CORRUPT && f->writable) {
    lb_status_drop(*out);
    *out = lb_store_dir_rebuild(f, true);
    retry = !lb_failed(*out);
  }
  if (lb_failed(*out)) lb_core_warn(f->base.core, fault, *out);
  return retry;
}

// -- reading ------------------------------------------------------------------

static void note_touch(lb_store_dir *f, lb_hash128 key, int64_t used) {
  if (!f->writable || f->n_touches == LB_MAX_TOUCHES ||
      time(NULL) - used < TOUCH_EVERY)
    return;
  if (!f->n_touches) f->touches_since = lb_clock_seconds();
  f->touches[f->n_touches++] = lb_db_id(key);
}

static lb_status flush(lb_store_dir *f);

static bool dir_get(lb_layer *l, lb_hash128 key, lb_span request,
                    lb_store_hit *out) {
  lb_store_dir *f = to_store_dir(l);
  lb_row_info row = {0};
  lb_status st = LB_OK;
  if (!lb_store_dir_ready(f)) return false;
  int rc = lb_db_find(&f->db, key, request, out, &row);
  // The rebuilt file may still have the entry.
  if (rc && lb_store_dir_handle_fault(f, rc, &st))
    lb_db_find(&f->db, key, request, out, &row);
  lb_status_drop(st);
  if (!row.hit) return false;
  f->base.core->stats.hits++;
  note_touch(f, key, row.used);
  if (f->n_touches == LB_MAX_TOUCHES ||
      (f->n_touches && lb_clock_seconds() - f->touches_since > TOUCH_EVERY))
    lb_status_drop(flush(f));
  return true;
}

// -- writing ------------------------------------------------------------------

static int write_pending(lb_store_dir *f) {
  int rc = lb_totals_write(f);
  for (size_t i = 0; !rc && i < f->n_touches; i++) {
    sqlite3_stmt *stmt = lb_db_stmt(&f->db, LB_Q_TOUCH, &rc);
    if (!stmt) return rc;
    f->base.core->sqlite.bind_int64(stmt, 2, time(NULL));
    rc = lb_db_run_id(&f->db, LB_Q_TOUCH, f->touches[i]);
  }
  return rc;
}

static void clear_pending(lb_store_dir *f) {
  f->n_touches = 0;
  f->written_stats = f->base.core->stats;
}

// Evicts down to 90 % of the capacity, so that not every put has to evict.
int lb_store_dir_evict(lb_store_dir *f, int64_t except, uint64_t *evicted) {
  int64_t bytes = 0, oldest;
  int rc = lb_db_bytes(&f->db, &bytes);
  if (rc || (uint64_t)bytes <= f->capacity) return rc;
  uint64_t limit = f->capacity - f->capacity / 10;
  while (!rc && (uint64_t)bytes > limit) {
    rc = lb_db_query_int(&f->db, LB_Q_OLDEST, &oldest);
    if (rc || oldest == except || !oldest) break;
    rc = lb_db_run_id(&f->db, LB_Q_DROP, oldest);
    if (!rc) rc = lb_db_bytes(&f->db, &bytes);
    ++*evicted;
  }
  return rc;
}

static int put_once(lb_store_dir *f, const lb_store_entry *e) {
  lb_store_stats before = f->base.core->stats;
  int rc = lb_db_run(&f->db, LB_Q_BEGIN);
  if (!rc) rc = lb_db_write(&f->db, LB_Q_PUT, e);
  if (!rc)
    rc =
        lb_store_dir_evict(f, lb_db_id(e->key), &f->base.core->stats.evictions);
  f->base.core->stats.insertions++;
  if (!rc) rc = write_pending(f);
  if (!rc) rc = lb_db_run(&f->db, LB_Q_COMMIT);
  if (rc)
    f->base.core->stats = before;
  else
    clear_pending(f);
  return rc;
}

// Closes the file if another process has removed or replaced it.
static void close_if_moved(lb_store_dir *f) {
  int moved = 0;
  if (!f->db.handle || !f->writable) return;
  f->base.core->sqlite.file_control(f->db.handle, "main",
                                    SQLITE_FCNTL_HAS_MOVED, &moved);
  if (!moved) return;
  lb_db_close(&f->db);
  lb_leases_close(&f->held);
}

lb_status lb_store_dir_writable(lb_store_dir *f) {
  close_if_moved(f);
  if (!lb_store_dir_ready(f))
    return lb_error(LB_IO, "there is no usable store in '%s'", f->directory);
  if (!f->writable)
    return lb_error(LB_IO, "'%s' cannot be written", f->directory);
  return LB_OK;
}

// Makes the call, and repeats it once if the file had to be rebuilt.
#define RETRY_AFTER_REBUILD(f, call, st)                      \
  do {                                                        \
    int rc_ = (call);                                         \
    if (rc_ && lb_store_dir_handle_fault(f, rc_, st)) {       \
      rc_ = (call);                                           \
      if (rc_) *(st) = lb_db_error(&(f)->db, rc_, (f)->path); \
      if (rc_) roll_back(f);                                  \
    }                                                         \
  } while (0)

static lb_status dir_put(lb_layer *l, const lb_store_entry *given) {
  lb_store_dir *f = to_store_dir(l);
  lb_status st = LB_OK;
  lb_store_entry e = *given;
  e.created = e.used = time(NULL);
  LB_TRY(lb_store_dir_writable(f));
  if ((uint64_t)lb_entry_bytes(&e) > f->capacity / 2)
    return lb_error(LB_INVALID,
                    "an entry of %lld bytes is larger than half the store's "
                    "capacity of %llu bytes",
                    (long long)lb_entry_bytes(&e),
                    (unsigned long long)f->capacity);
  RETRY_AFTER_REBUILD(f, put_once(f, &e), &st);
  return st;
}

static lb_status dir_drop(lb_layer *l, lb_hash128 key) {
  lb_store_dir *f = to_store_dir(l);
  lb_status st = LB_OK;
  LB_TRY(lb_store_dir_writable(f));
  RETRY_AFTER_REBUILD(f, lb_db_run_id(&f->db, LB_Q_DROP, lb_db_id(key)), &st);
  f->base.core->stats.corrupt++;
  return st;
}

static int flush_once(lb_store_dir *f) {
  int rc = lb_db_run(&f->db, LB_Q_BEGIN);
  if (!rc) rc = write_pending(f);
  if (!rc) rc = lb_db_run(&f->db, LB_Q_COMMIT);
  return rc;
}

static lb_status flush(lb_store_dir *f) {
  lb_status st = LB_OK;
  if (!f->n_touches && !lb_totals_pending(f)) return LB_OK;
  LB_TRY(lb_store_dir_writable(f));
  RETRY_AFTER_REBUILD(f, flush_once(f), &st);
  clear_pending(f);  // losing a last-use time does little harm
  return st;
}

static lb_status dir_flush(lb_layer *l) { return flush(to_store_dir(l)); }

static lb_lease_state dir_lease(lb_layer *l, lb_hash128 key, double seconds) {
  lb_store_dir *f = to_store_dir(l);
  close_if_moved(f);
  return lb_store_dir_ready(f) ? lb_leases_take(&f->held, key, seconds)
                               : LB_LEASE_GRANTED;
}

static void dir_release(lb_layer *l, lb_hash128 key) {
  lb_leases_give(&to_store_dir(l)->held, key);
}

// -- trial results ------------------------------------------------------------

static int read_trial_result(lb_store_dir *f, lb_hash128 key,
                             const char *processor, int64_t *out) {
  int rc;
  sqlite3_stmt *stmt = lb_db_stmt(&f->db, LB_Q_TRIAL_RESULT, &rc);
  if (!stmt) return rc;
  f->base.core->sqlite.bind_int64(stmt, 1, lb_db_id(key));
  f->base.core->sqlite.bind_text(stmt, 2, processor, -1, SQLITE_TRANSIENT);
  return lb_db_query_int(&f->db, LB_Q_TRIAL_RESULT, out);
}

lb_trial_result lb_store_dir_trial_result(lb_store_dir *f, lb_hash128 key,
                                          const char *processor) {
  int64_t result = 0;
  lb_status st = LB_OK;
  if (lb_store_dir_ready(f))
    RETRY_AFTER_REBUILD(f, read_trial_result(f, key, processor, &result), &st);
  lb_status_drop(st);
  return result == LB_TRIAL_RESULT_KEPT || result == LB_TRIAL_RESULT_DEMOTED
             ? (lb_trial_result)result
             : LB_TRIAL_RESULT_NONE;
}

static int write_trial_result(lb_store_dir *f, lb_hash128 key,
                              const char *processor, lb_trial_result result) {
  int rc;
  sqlite3_stmt *stmt = lb_db_stmt(&f->db, LB_Q_PUT_TRIAL_RESULT, &rc);
  if (!stmt) return rc;
  f->base.core->sqlite.bind_text(stmt, 2, processor, -1, SQLITE_TRANSIENT);
  f->base.core->sqlite.bind_int64(stmt, 3, result);
  return lb_db_run_id(&f->db, LB_Q_PUT_TRIAL_RESULT, lb_db_id(key));
}

lb_status lb_store_dir_put_trial_result(lb_store_dir *f, lb_hash128 key,
                                        const char *processor,
                                        lb_trial_result result) {
  lb_status st = LB_OK;
  LB_TRY(lb_store_dir_writable(f));
  RETRY_AFTER_REBUILD(f, write_trial_result(f, key, processor, result), &st);
  return st;
}

// -- lifecycle ----------------------------------------------------------------

// Closes without the checkpoint that the last connection would do, so that a
// fork does not wait for the disk.
static void dir_before_fork(lb_layer *l) {
  lb_store_dir *f = to_store_dir(l);
  if (f->db.handle)
    f->db.q->db_config(f->db.handle, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
  lb_db_close(&f->db);
}

static void dir_in_child(lb_layer *l) {
  lb_leases_close(&to_store_dir(l)->held);
}

static void dir_free(lb_layer *l) {
  lb_store_dir *f = to_store_dir(l);
  lb_db_close(&f->db);
  lb_leases_close(&f->held);
  free(f->temp_path);
  free(f->leases);
  free(f->path);
  free(f->directory);
  free(f);
}

static const lb_layer_ops dir_ops = {
    .get = dir_get,
    .put = dir_put,
    .drop = dir_drop,
    .lease = dir_lease,
    .release = dir_release,
    .flush = dir_flush,
    .before_fork = dir_before_fork,
    .in_child = dir_in_child,
    .free = dir_free,
};

static bool join_path(char **out, const char *a, const char *b) {
  if (asprintf(out, "%s/%s", a, b) >= 0) return true;
  *out = NULL;
  return false;
}

lb_status lb_store_dir_new(lb_store_core *core, const lb_store_options *o,
                           lb_store_dir **out) {
  lb_store_dir *f = *out = calloc(1, sizeof *f);
  if (!f) return lb_oom();
  f->base = (lb_layer){&dir_ops, core};
  f->capacity = o->capacity ? o->capacity : LB_STORE_CAPACITY;
  lb_leases_init(&f->held);
  f->directory = strdup(o->directory);
  if (f->directory && join_path(&f->path, f->directory, LB_STORE_FILE) &&
      join_path(&f->leases, f->directory, "leases") &&
      join_path(&f->temp_path, f->directory, LB_STORE_FILE ".new"))
    return LB_OK;
  dir_free(&f->base);
  *out = NULL;
  return lb_oom();
}
