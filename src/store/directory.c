// store/directory.c -- one SQLite file: opening, rebuilding, reading, writing.
//
// What goes wrong is handed to `lb_store_dir_trouble`, which counts, warns once
// of each kind, and rebuilds a file that is damaged.
#include "store/directory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "store/repair.h"
#include "store/trust.h"

#define TOUCH_EVERY 60  // seconds: uses nearer than that are one
#define MAX_REBUILDS 3  // of one store: then the disk is to blame
#define REST 1.0        // seconds without tries after a lock was not to be had
#define RETRY 10.0      // seconds before a folder that failed is tried again
#define ALONE_PATIENCE 10  // seconds to wait for who makes or rebuilds the file

static lb_store_dir *to_folder(lb_layer *l) { return (lb_store_dir *)l; }

// -- opening
// -------------------------------------------------------------------

static lb_status reopen(lb_store_dir *f);

// `keep` false: rows of an earlier version are not carried over.
static lb_status rebuild_alone(lb_store_dir *f, bool keep) {
  lb_repaired done;
  if (lb_leases_rebuilds(&f->held) != f->generation) return LB_OK;
  if (f->base.core->stats.rebuilds >= MAX_REBUILDS) {
    f->off = true;
    return lb_error(LB_IO, "'%s' was damaged %d times; it is not used any more",
                    f->path, MAX_REBUILDS + 1);
  }
  int rc = lb_repair(&f->base.core->sqlite, f->path, f->beside, keep, &done);
  if (rc)
    return lb_error(LB_IO, "'%s' is damaged, and cannot be rebuilt (%s)",
                    f->path, f->base.core->sqlite.errstr(rc));
  lb_leases_count_rebuild(&f->held);
  f->base.core->stats.rebuilds++;
  f->base.core->stats.salvaged += done.kept;
  f->base.core->stats.corrupt += done.lost;
  lb_log_line(f->base.core->log, lb_core_level(f->base.core, LB_FAULT_CORRUPT),
              keep ? "kernels on disk: '%s' was damaged and is rebuilt: %llu "
                     "kept, %llu lost"
                   : "kernels on disk: '%s' of an earlier version is replaced",
              f->path, (unsigned long long)done.kept,
              (unsigned long long)done.lost);
  return LB_OK;
}

// One process rebuilds; those that waited for it find a sound file.
lb_status lb_store_dir_rebuild(lb_store_dir *f, bool keep) {
  lb_db_close(&f->db);
  if (!lb_leases_alone(&f->held, ALONE_PATIENCE))
    return lb_error(LB_IO, "'%s' is damaged, and another process rebuilds it",
                    f->path);
  lb_status st = rebuild_alone(f, keep);
  lb_leases_together(&f->held);
  if (!lb_failed(st)) st = reopen(f);
  return st;
}

// Of processes that start at once one makes the tables.
static lb_status create(lb_store_dir *f) {
  lb_db_kind kind;
  int64_t version;
  if (!lb_leases_alone(&f->held, ALONE_PATIENCE))
    return lb_error(LB_IO, "another process has been making '%s' for long",
                    f->path);
  int rc = lb_db_look(&f->db, &kind, &version);
  if (!rc && kind == LB_DB_EMPTY) rc = lb_db_create(&f->db, true);
  lb_leases_together(&f->held);
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
  int rc = lb_db_share(&f->db);
  return rc ? lb_db_error(&f->db, rc, f->path) : LB_OK;
}

static lb_status open_writable(lb_store_dir *f) {
  lb_db_kind kind = LB_DB_CORRUPT;
  int64_t version = 0;
  LB_TRY(lb_leases_open(&f->held, f->leases));
  f->generation = lb_leases_rebuilds(&f->held);
  f->writable = true;
  int rc = lb_db_open(&f->base.core->sqlite, f->path, LB_DB_WRITE, &f->db);
  if (!rc) rc = lb_db_look(&f->db, &kind, &version);
  if (lb_db_fault(rc) == LB_FAULT_CORRUPT)
    kind = LB_DB_CORRUPT;
  else if (rc)
    return lb_db_error(&f->db, rc, f->path);
  return open_by_kind(f, kind, version);
}

static lb_status open_unwritable(lb_store_dir *f, bool exists) {
  f->writable = false;
  if (!exists)
    return lb_error(LB_IO, "'%s' cannot be written: nothing is kept",
                    f->folder);
  LB_TRY(lb_db_open_immutable(&f->base.core->sqlite, f->path, &f->db));
  lb_log_line(f->base.core->log, lb_core_level(f->base.core, LB_FAULT_READONLY),
              "kernels on disk: '%s' cannot be written: what is there is used, "
              "nothing is added",
              f->folder);
  return LB_OK;
}

static lb_status reopen(lb_store_dir *f) {
  bool exists;
  LB_TRY(lb_core_load_sqlite(f->base.core));
  LB_TRY(lb_trust_directory(f->folder));
  LB_TRY(lb_trust_file(f->path, false, &exists));
  lb_db_close(&f->db);
  lb_status st =
      access(f->folder, W_OK) ? open_unwritable(f, exists) : open_writable(f);
  if (lb_failed(st)) lb_db_close(&f->db);
  return st;
}

// Leaves the status to the caller; a reason that will not go away is final.
lb_status lb_store_dir_open(lb_store_dir *f) {
  if (f->db.handle) return LB_OK;
  lb_status st = reopen(f);
  lb_code code = lb_status_code(st);
  if (code == LB_INVALID || code == LB_UNSUPPORTED) f->off = true;
  if (lb_failed(st)) f->rest_until = lb_clock_seconds() + RETRY;
  return st;
}

bool lb_store_dir_ready(lb_store_dir *f) {
  if (f->db.handle && lb_clock_seconds() >= f->rest_until) return true;
  if (f->off || lb_clock_seconds() < f->rest_until) return false;
  lb_status st = lb_store_dir_open(f);
  bool ok = !lb_failed(st);
  if (!ok) {
    f->base.core->stats.failures++;
    lb_core_warn(f->base.core, 8, st);
  }
  lb_status_drop(st);
  return ok;
}

// What failed amid a transaction is not to be in the way of the next one.
static void roll_back(lb_store_dir *f) {
  if (!f->base.core->sqlite.get_autocommit(f->db.handle))
    lb_db_do(&f->db, LB_Q_ROLLBACK);
}

// What is to be done about a failure of the folder's file. Returns true if it
// was rebuilt: then the call is worth another try.
bool lb_store_dir_trouble(lb_store_dir *f, int rc, lb_status *out) {
  lb_fault fault = lb_db_fault(rc);
  bool again = false;
  roll_back(f);
  *out = lb_db_error(&f->db, rc, f->path);
  f->base.core->stats.failures++;
  if (fault == LB_FAULT_BUSY) f->rest_until = lb_clock_seconds() + REST;
  if (fault == LB_FAULT_CORRUPT && f->writable) {
    lb_status_drop(*out);
    *out = lb_store_dir_rebuild(f, true);
    again = !lb_failed(*out);
  }
  if (lb_failed(*out)) lb_core_warn(f->base.core, fault, *out);
  return again;
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

static bool folder_get(lb_layer *l, lb_hash128 key, lb_span request,
                       lb_store_found *out) {
  lb_store_dir *f = to_folder(l);
  lb_found_row row = {0};
  lb_status st = LB_OK;
  if (!lb_store_dir_ready(f)) return false;
  int rc = lb_db_find(&f->db, key, request, out, &row);
  // A file that was rebuilt may have it still.
  if (rc && lb_store_dir_trouble(f, rc, &st))
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

static int write_notes(lb_store_dir *f) {
  int rc = lb_totals_write(f);
  for (size_t i = 0; !rc && i < f->n_touches; i++) {
    sqlite3_stmt *stmt = lb_db_use(&f->db, LB_Q_TOUCH, &rc);
    if (!stmt) return rc;
    f->base.core->sqlite.bind_int64(stmt, 2, time(NULL));
    rc = lb_db_do_id(&f->db, LB_Q_TOUCH, f->touches[i]);
  }
  return rc;
}

static void forget_notes(lb_store_dir *f) {
  f->n_touches = 0;
  f->noted = f->base.core->stats;
}

// Down to nine tenths, so that not every put has to.
int lb_store_dir_evict(lb_store_dir *f, int64_t but, uint64_t *evicted) {
  int64_t bytes = 0, oldest;
  int rc = lb_db_bytes(&f->db, &bytes);
  if (rc || (uint64_t)bytes <= f->capacity) return rc;
  uint64_t enough = f->capacity - f->capacity / 10;
  while (!rc && (uint64_t)bytes > enough) {
    rc = lb_db_number(&f->db, LB_Q_OLDEST, &oldest);
    if (rc || oldest == but || !oldest) break;
    rc = lb_db_do_id(&f->db, LB_Q_DROP, oldest);
    if (!rc) rc = lb_db_bytes(&f->db, &bytes);
    ++*evicted;
  }
  return rc;
}

static int put_once(lb_store_dir *f, const lb_store_entry *e) {
  lb_store_stats before = f->base.core->stats;
  int rc = lb_db_do(&f->db, LB_Q_BEGIN);
  if (!rc) rc = lb_db_write(&f->db, LB_Q_PUT, e);
  if (!rc)
    rc =
        lb_store_dir_evict(f, lb_db_id(e->key), &f->base.core->stats.evictions);
  f->base.core->stats.insertions++;
  if (!rc) rc = write_notes(f);
  if (!rc) rc = lb_db_do(&f->db, LB_Q_COMMIT);
  if (rc)
    f->base.core->stats = before;
  else
    forget_notes(f);
  return rc;
}

// Somebody may have removed the file meanwhile.
static void notice_moved(lb_store_dir *f) {
  int moved = 0;
  if (!f->db.handle || !f->writable) return;
  f->base.core->sqlite.file_control(f->db.handle, "main",
                                    SQLITE_FCNTL_HAS_MOVED, &moved);
  if (!moved) return;
  lb_db_close(&f->db);
  lb_leases_close(&f->held);
}

lb_status lb_store_dir_writable(lb_store_dir *f) {
  notice_moved(f);
  if (!lb_store_dir_ready(f))
    return lb_error(LB_IO, "there is no store in '%s'", f->folder);
  if (!f->writable) return lb_error(LB_IO, "'%s' cannot be written", f->folder);
  return LB_OK;
}

// Tries again once if the file was rebuilt.
#define TWICE(f, call, st)                                    \
  do {                                                        \
    int rc_ = (call);                                         \
    if (rc_ && lb_store_dir_trouble(f, rc_, st)) {            \
      rc_ = (call);                                           \
      if (rc_) *(st) = lb_db_error(&(f)->db, rc_, (f)->path); \
      if (rc_) roll_back(f);                                  \
    }                                                         \
  } while (0)

static lb_status folder_put(lb_layer *l, const lb_store_entry *given) {
  lb_store_dir *f = to_folder(l);
  lb_status st = LB_OK;
  lb_store_entry e = *given;
  e.created = e.used = time(NULL);
  LB_TRY(lb_store_dir_writable(f));
  if ((uint64_t)lb_entry_bytes(&e) > f->capacity / 2)
    return lb_error(LB_INVALID, "%lld bytes are too many for a store of %llu",
                    (long long)lb_entry_bytes(&e),
                    (unsigned long long)f->capacity);
  TWICE(f, put_once(f, &e), &st);
  return st;
}

static lb_status folder_drop(lb_layer *l, lb_hash128 key) {
  lb_store_dir *f = to_folder(l);
  lb_status st = LB_OK;
  LB_TRY(lb_store_dir_writable(f));
  TWICE(f, lb_db_do_id(&f->db, LB_Q_DROP, lb_db_id(key)), &st);
  f->base.core->stats.corrupt++;
  return st;
}

static int flush_once(lb_store_dir *f) {
  int rc = lb_db_do(&f->db, LB_Q_BEGIN);
  if (!rc) rc = write_notes(f);
  if (!rc) rc = lb_db_do(&f->db, LB_Q_COMMIT);
  return rc;
}

static lb_status flush(lb_store_dir *f) {
  lb_status st = LB_OK;
  if (!f->n_touches && !lb_totals_lack(f)) return LB_OK;
  LB_TRY(lb_store_dir_writable(f));
  TWICE(f, flush_once(f), &st);
  forget_notes(f);  // a use that is not noted does little harm
  return st;
}

static lb_status folder_flush(lb_layer *l) { return flush(to_folder(l)); }

static lb_lease_state folder_lease(lb_layer *l, lb_hash128 key,
                                   double seconds) {
  lb_store_dir *f = to_folder(l);
  notice_moved(f);
  return lb_store_dir_ready(f) ? lb_leases_take(&f->held, key, seconds)
                               : LB_LEASE_GRANTED;
}

static void folder_release(lb_layer *l, lb_hash128 key) {
  lb_leases_give(&to_folder(l)->held, key);
}

// -- verdicts -----------------------------------------------------------------

static int read_verdict(lb_store_dir *f, lb_hash128 key, const char *processor,
                        int64_t *out) {
  int rc;
  sqlite3_stmt *stmt = lb_db_use(&f->db, LB_Q_TRIAL_RESULT, &rc);
  if (!stmt) return rc;
  f->base.core->sqlite.bind_int64(stmt, 1, lb_db_id(key));
  f->base.core->sqlite.bind_text(stmt, 2, processor, -1, SQLITE_TRANSIENT);
  return lb_db_number(&f->db, LB_Q_TRIAL_RESULT, out);
}

lb_trial_result lb_folder_trial_result(lb_store_dir *f, lb_hash128 key,
                                       const char *processor) {
  int64_t verdict = 0;
  lb_status st = LB_OK;
  if (lb_store_dir_ready(f))
    TWICE(f, read_verdict(f, key, processor, &verdict), &st);
  lb_status_drop(st);
  return verdict == LB_TRIAL_RESULT_KEPT || verdict == LB_TRIAL_RESULT_DEMOTED
             ? (lb_trial_result)verdict
             : LB_TRIAL_RESULT_NONE;
}

static int write_verdict(lb_store_dir *f, lb_hash128 key, const char *processor,
                         lb_trial_result verdict) {
  int rc;
  sqlite3_stmt *stmt = lb_db_use(&f->db, LB_Q_PUT_TRIAL_RESULT, &rc);
  if (!stmt) return rc;
  f->base.core->sqlite.bind_text(stmt, 2, processor, -1, SQLITE_TRANSIENT);
  f->base.core->sqlite.bind_int64(stmt, 3, verdict);
  return lb_db_do_id(&f->db, LB_Q_PUT_TRIAL_RESULT, lb_db_id(key));
}

lb_status lb_folder_put_trial_result(lb_store_dir *f, lb_hash128 key,
                                     const char *processor,
                                     lb_trial_result verdict) {
  lb_status st = LB_OK;
  LB_TRY(lb_store_dir_writable(f));
  TWICE(f, write_verdict(f, key, processor, verdict), &st);
  return st;
}

// -- its life -----------------------------------------------------------------

// Without what the last one to close a file does for it: a fork is not to wait
// for a disk.
static void folder_before_fork(lb_layer *l) {
  lb_store_dir *f = to_folder(l);
  if (f->db.handle)
    f->db.q->db_config(f->db.handle, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
  lb_db_close(&f->db);
}

static void folder_in_child(lb_layer *l) {
  lb_leases_close(&to_folder(l)->held);
}

static void folder_free(lb_layer *l) {
  lb_store_dir *f = to_folder(l);
  lb_db_close(&f->db);
  lb_leases_close(&f->held);
  free(f->beside);
  free(f->leases);
  free(f->path);
  free(f->folder);
  free(f);
}

static const lb_layer_ops folder_ops = {
    .get = folder_get,
    .put = folder_put,
    .drop = folder_drop,
    .lease = folder_lease,
    .release = folder_release,
    .flush = folder_flush,
    .before_fork = folder_before_fork,
    .in_child = folder_in_child,
    .free = folder_free,
};

static bool join(char **out, const char *a, const char *b) {
  if (asprintf(out, "%s/%s", a, b) >= 0) return true;
  *out = NULL;
  return false;
}

lb_status lb_store_dir_new(lb_store_core *core, const lb_store_options *o,
                           lb_store_dir **out) {
  lb_store_dir *f = *out = calloc(1, sizeof *f);
  if (!f) return lb_oom();
  f->base = (lb_layer){&folder_ops, core};
  f->capacity = o->capacity ? o->capacity : LB_STORE_CAPACITY;
  lb_leases_init(&f->held);
  f->folder = strdup(o->folder);
  if (f->folder && join(&f->path, f->folder, LB_STORE_FILE) &&
      join(&f->leases, f->folder, "leases") &&
      join(&f->beside, f->folder, LB_STORE_FILE ".new"))
    return LB_OK;
  folder_free(&f->base);
  *out = NULL;
  return lb_oom();
}
