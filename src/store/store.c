// store/store.c -- layers, faults, and what is kept of how it went.
//
// Every public function takes the lock, opens what is not open, does its work
// and hands what went wrong to `trouble`, which counts, warns once of each
// kind, and rebuilds a file that is damaged.
#include "store/store.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "store/inside.h"
#include "store/repair.h"
#include "store/trust.h"

#define TOUCH_EVERY 60  // seconds: uses nearer than that are one
#define MAX_REBUILDS 3  // of one store: then the disk is to blame
#define REST 1.0        // seconds without tries after a lock was not to be had
#define RETRY 10.0      // seconds before a folder that failed is tried again
#define ALONE_PATIENCE 10  // seconds to wait for who makes or rebuilds the file

static uint64_t ns_since(double start) {
  return (uint64_t)((lb_clock_seconds() - start) * 1e9);
}

// -- making one ---------------------------------------------------------------

static void close_all(lb_store *s) {
  lb_db_close(&s->db);
  for (size_t i = 0; i < s->n_layers; i++) {
    lb_db_close(&s->layers[i].db);
    s->layers[i].tried = false;
  }
}

// Without what the last one to close a file does for it: a fork is not to wait
// for a disk.
static void before_fork(lb_lock *l) {
  lb_store *s = (lb_store *)l;
  if (s->db.handle)
    s->sqlite.db_config(s->db.handle, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1,
                        NULL);
  close_all(s);
}

static void in_child(lb_lock *l) { lb_leases_close(&((lb_store *)l)->held); }

static bool join(char **out, const char *a, const char *b) {
  if (asprintf(out, "%s/%s", a, b) >= 0) return true;
  *out = NULL;
  return false;
}

static lb_status name_files(lb_store *s, const lb_store_options *o) {
  if (o->folder) {
    s->folder = strdup(o->folder);
    if (!s->folder || !join(&s->path, s->folder, LB_STORE_FILE) ||
        !join(&s->leases, s->folder, "leases") ||
        !join(&s->beside, s->folder, LB_STORE_FILE ".new"))
      return lb_oom();
  }
  for (; s->n_layers < o->n_layers; s->n_layers++) {
    s->layers[s->n_layers].path = strdup(o->layers[s->n_layers]);
    if (!s->layers[s->n_layers].path) return lb_oom();
  }
  return LB_OK;
}

static void free_all(lb_store *s) {
  for (size_t i = 0; i < s->n_layers; i++) free(s->layers[i].path);
  free(s->beside);
  free(s->leases);
  free(s->path);
  free(s->folder);
  free(s);
}

lb_status lb_store_new(const lb_store_options *o, lb_store **out) {
  *out = NULL;
  if (o->n_layers > LB_STORE_MAX_LAYERS)
    return lb_error(LB_INVALID,
                    "%zu read-only layers are given, %d are allowed",
                    o->n_layers, LB_STORE_MAX_LAYERS);
  lb_store *s = calloc(1, sizeof *s);
  if (!s) return lb_oom();
  s->capacity = o->capacity ? o->capacity : LB_STORE_CAPACITY;
  s->log = o->log;
  lb_leases_init(&s->held);
  lb_status st = name_files(s, o);
  if (!lb_failed(st))
    st = lb_lock_init_hooked(&s->lock, (lb_fork_hooks){before_fork, in_child});
  if (lb_failed(st)) {
    free_all(s);
  } else {
    *out = s;
  }
  return st;
}

// -- what goes wrong ----------------------------------------------------------

static const char *const fault_names[] = {
    [LB_FAULT_DAMAGED] = "is damaged",
    [LB_FAULT_BUSY] = "is locked by another process",
    [LB_FAULT_FULL] = "cannot grow: the disk is full",
    [LB_FAULT_READONLY] = "cannot be written",
    [LB_FAULT_OTHER] = "cannot be used",
};

static bool first_of_kind(lb_store *s, unsigned kind) {
  bool first = !(s->warned & 1u << kind);
  s->warned |= 1u << kind;
  return first;
}

// Consumes nothing: the caller drops or returns the status.
static void warn(lb_store *s, unsigned kind, lb_status st) {
  lb_log_line(s->log, first_of_kind(s, kind) ? LB_LOG_WARN : LB_LOG_DEBUG,
              "kernels on disk: %s", lb_status_message(st));
}

lb_status lb_inside_fault_error(const lb_db *db, int rc, const char *path) {
  lb_fault fault = lb_db_fault(rc);
  if ((rc & 0xff) == SQLITE_NOMEM) return lb_oom();
  return lb_error(fault == LB_FAULT_DAMAGED ? LB_INVALID : LB_IO,
                  "'%s' %s (%s)", path, fault_names[fault],
                  lb_db_message(db, rc));
}

// -- opening the folder -------------------------------------------------------

static lb_status load(lb_store *s) {
  if (s->loaded) return LB_OK;
  LB_TRY(lb_sqlite_load(&s->sqlite));
  s->loaded = true;
  return LB_OK;
}

static lb_status kind_error(lb_db_kind kind, int64_t version,
                            const char *path) {
  if (kind == LB_DB_LATER)
    return lb_error(LB_UNSUPPORTED,
                    "'%s' was made by a later version of Limber (its version "
                    "is %lld, %d is known); it is left as it is, and not used",
                    path, (long long)version, LB_STORE_VERSION);
  if (kind == LB_DB_FOREIGN)
    return lb_error(LB_INVALID,
                    "'%s' is a database, but not one of Limber's; it is left "
                    "as it is, and not used",
                    path);
  return lb_error(LB_INVALID, "'%s' holds no kernels", path);
}

static lb_status reopen(lb_store *s);

// `keep` false: rows of an earlier version are not carried over.
static lb_status rebuild_alone(lb_store *s, bool keep) {
  lb_repaired done;
  if (lb_leases_rebuilds(&s->held) != s->generation) return LB_OK;
  if (s->stats.rebuilds >= MAX_REBUILDS) {
    s->off = true;
    return lb_error(LB_IO, "'%s' was damaged %d times; it is not used any more",
                    s->path, MAX_REBUILDS + 1);
  }
  int rc = lb_repair(&s->sqlite, s->path, s->beside, keep, &done);
  if (rc)
    return lb_error(LB_IO, "'%s' is damaged, and cannot be rebuilt (%s)",
                    s->path, s->sqlite.errstr(rc));
  lb_leases_count_rebuild(&s->held);
  s->stats.rebuilds++;
  s->stats.salvaged += done.kept;
  s->stats.corrupt += done.lost;
  lb_log_line(
      s->log, first_of_kind(s, LB_FAULT_DAMAGED) ? LB_LOG_WARN : LB_LOG_DEBUG,
      keep ? "kernels on disk: '%s' was damaged and is rebuilt: %llu "
             "kept, %llu lost"
           : "kernels on disk: '%s' of an earlier version is replaced",
      s->path, (unsigned long long)done.kept, (unsigned long long)done.lost);
  return LB_OK;
}

// One process rebuilds; those that waited for it find a sound file.
lb_status lb_inside_rebuild(lb_store *s, bool keep) {
  lb_db_close(&s->db);
  if (!lb_leases_alone(&s->held, ALONE_PATIENCE))
    return lb_error(LB_IO, "'%s' is damaged, and another process rebuilds it",
                    s->path);
  lb_status st = rebuild_alone(s, keep);
  lb_leases_together(&s->held);
  if (!lb_failed(st)) st = reopen(s);
  return st;
}

// Of processes that start at once one makes the tables.
static lb_status create(lb_store *s) {
  lb_db_kind kind;
  int64_t version;
  if (!lb_leases_alone(&s->held, ALONE_PATIENCE))
    return lb_error(LB_IO, "another process has been making '%s' for long",
                    s->path);
  int rc = lb_db_look(&s->db, &kind, &version);
  if (!rc && kind == LB_DB_EMPTY) rc = lb_db_create(&s->db, true);
  lb_leases_together(&s->held);
  return rc ? lb_inside_fault_error(&s->db, rc, s->path) : LB_OK;
}

static lb_status open_by_kind(lb_store *s, lb_db_kind kind, int64_t version) {
  if (kind == LB_DB_LATER || kind == LB_DB_FOREIGN) {
    s->sqlite.db_config(s->db.handle, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1,
                        NULL);
    return kind_error(kind, version, s->path);
  }
  if (kind == LB_DB_BROKEN || kind == LB_DB_EARLIER)
    return lb_inside_rebuild(s, kind == LB_DB_BROKEN);
  if (kind == LB_DB_EMPTY) LB_TRY(create(s));
  int rc = lb_db_share(&s->db);
  return rc ? lb_inside_fault_error(&s->db, rc, s->path) : LB_OK;
}

static lb_status open_writable(lb_store *s) {
  lb_db_kind kind = LB_DB_BROKEN;
  int64_t version = 0;
  LB_TRY(lb_leases_open(&s->held, s->leases));
  s->generation = lb_leases_rebuilds(&s->held);
  s->writable = true;
  int rc = lb_db_open(&s->sqlite, s->path, LB_DB_WRITE, &s->db);
  if (!rc) rc = lb_db_look(&s->db, &kind, &version);
  if (lb_db_fault(rc) == LB_FAULT_DAMAGED)
    kind = LB_DB_BROKEN;
  else if (rc)
    return lb_inside_fault_error(&s->db, rc, s->path);
  return open_by_kind(s, kind, version);
}

lb_status lb_inside_open_read_only(const lb_sqlite *q, const char *path,
                                   lb_db *out) {
  lb_db_kind kind;
  int64_t version;
  int rc = lb_db_open(q, path, LB_DB_IMMUTABLE, out);
  if (!rc) rc = lb_db_look(out, &kind, &version);
  if (rc) return lb_inside_fault_error(out, rc, path);
  return kind == LB_DB_OURS ? LB_OK : kind_error(kind, version, path);
}

static lb_status open_unwritable(lb_store *s, bool exists) {
  s->writable = false;
  if (!exists)
    return lb_error(LB_IO, "'%s' cannot be written: nothing is kept",
                    s->folder);
  LB_TRY(lb_inside_open_read_only(&s->sqlite, s->path, &s->db));
  lb_log_line(s->log,
              first_of_kind(s, LB_FAULT_READONLY) ? LB_LOG_WARN : LB_LOG_DEBUG,
              "kernels on disk: '%s' cannot be written: what is there is used, "
              "nothing is added",
              s->folder);
  return LB_OK;
}

static lb_status reopen(lb_store *s) {
  bool exists;
  LB_TRY(load(s));
  LB_TRY(lb_trust_folder(s->folder));
  LB_TRY(lb_trust_file(s->path, false, &exists));
  lb_db_close(&s->db);
  lb_status st =
      access(s->folder, W_OK) ? open_unwritable(s, exists) : open_writable(s);
  if (lb_failed(st)) lb_db_close(&s->db);
  return st;
}

// Leaves the status to the caller; a reason that will not go away is final.
static lb_status try_folder(lb_store *s) {
  if (s->db.handle) return LB_OK;
  lb_status st = reopen(s);
  lb_code code = lb_status_code(st);
  if (code == LB_INVALID || code == LB_UNSUPPORTED) s->off = true;
  if (lb_failed(st)) s->rest_until = lb_clock_seconds() + RETRY;
  return st;
}

bool lb_inside_ready(lb_store *s) {
  if (s->db.handle && lb_clock_seconds() >= s->rest_until) return true;
  if (!s->folder || s->off || lb_clock_seconds() < s->rest_until) return false;
  lb_status st = try_folder(s);
  bool ok = !lb_failed(st);
  if (!ok) {
    s->stats.failures++;
    warn(s, 8, st);
  }
  lb_status_drop(st);
  return ok;
}

static lb_status not_ready(const lb_store *s) {
  return lb_error(LB_IO,
                  s->folder ? "there is no store in '%s'"
                            : "there is no folder for kernels",
                  s->folder);
}

// What failed amid a transaction is not to be in the way of the next one.
static void roll_back(lb_store *s) {
  if (!s->sqlite.get_autocommit(s->db.handle)) lb_db_do(&s->db, LB_Q_ROLLBACK);
}

// What is to be done about a failure of the folder's file. Returns true if it
// was rebuilt: then the call is worth another try.
bool lb_inside_trouble(lb_store *s, int rc, lb_status *out) {
  lb_fault fault = lb_db_fault(rc);
  bool again = false;
  roll_back(s);
  *out = lb_inside_fault_error(&s->db, rc, s->path);
  s->stats.failures++;
  if (fault == LB_FAULT_BUSY) s->rest_until = lb_clock_seconds() + REST;
  if (fault == LB_FAULT_DAMAGED && s->writable) {
    lb_status_drop(*out);
    *out = lb_inside_rebuild(s, true);
    again = !lb_failed(*out);
  }
  if (lb_failed(*out)) warn(s, fault, *out);
  return again;
}

lb_status lb_store_check(lb_store *s) {
  lb_lock_take(&s->lock);
  lb_status st = s->folder ? try_folder(s) : not_ready(s);
  lb_lock_give(&s->lock);
  return st;
}

// -- layers below -------------------------------------------------------------

static lb_status open_layer(lb_store *s, lb_layer *l) {
  bool exists;
  char *inside = NULL;
  if (!join(&inside, l->path, LB_STORE_FILE)) return lb_oom();
  const char *path = access(inside, F_OK) ? l->path : inside;
  lb_status st = load(s);
  if (!lb_failed(st)) st = lb_trust_file(path, true, &exists);
  if (!lb_failed(st) && !exists)
    st = lb_error(LB_IO, "the read-only layer '%s' is not there", path);
  if (!lb_failed(st)) st = lb_inside_open_read_only(&s->sqlite, path, &l->db);
  if (lb_failed(st)) lb_db_close(&l->db);
  free(inside);
  return st;
}

bool lb_inside_layer_ready(lb_store *s, lb_layer *l) {
  if (l->tried) return l->db.handle != NULL;
  l->tried = true;
  lb_status st = open_layer(s, l);
  if (lb_failed(st)) {
    s->stats.failures++;
    warn(s, 16 + (unsigned)(l - s->layers), st);
  }
  lb_status_drop(st);
  return l->db.handle != NULL;
}

// -- get ----------------------------------------------------------------------

void lb_store_found_fini(lb_store_found *f) {
  lb_blob_fini(&f->object);
  lb_blob_fini(&f->meta);
}

static bool copy_blob(lb_span from, lb_blob *out) {
  out->data = malloc(from.size ? from.size : 1);
  if (!out->data) return false;
  memcpy(out->data, from.data, from.size);
  out->size = from.size;
  return true;
}

static bool same_span(lb_span a, lb_span b) {
  return a.size == b.size && (!a.size || !memcmp(a.data, b.data, a.size));
}

typedef struct found_row {
  bool hit;
  int64_t used;
} found_row;

// SQLITE_OK with a hit or without; SQLITE_CORRUPT for a row that is not sound.
static int find(lb_db *db, lb_hash128 key, lb_span request, lb_store_found *out,
                found_row *row) {
  int rc;
  lb_store_entry e;
  sqlite3_stmt *stmt = lb_db_use(db, LB_Q_GET, &rc);
  if (!stmt) return rc;
  db->q->bind_int64(stmt, 1, lb_db_id(key));
  rc = db->q->step(stmt);
  if (rc == SQLITE_DONE) {
    rc = SQLITE_OK;
  } else if (rc == SQLITE_ROW && !lb_db_row(db, stmt, &e)) {
    rc = SQLITE_CORRUPT;
  } else if (rc == SQLITE_ROW) {
    rc = SQLITE_OK;
    if (e.key.lo == key.lo && e.key.hi == key.hi &&
        same_span(e.request, request)) {
      row->hit =
          copy_blob(e.object, &out->object) && copy_blob(e.meta, &out->meta);
      if (!row->hit) rc = SQLITE_NOMEM;
      row->used = e.used;
    }
  }
  if (!row->hit) lb_store_found_fini(out);
  db->q->reset(stmt);
  return rc;
}

static void note_touch(lb_store *s, lb_hash128 key, int64_t used) {
  if (!s->writable || s->n_touches == LB_MAX_TOUCHES ||
      time(NULL) - used < TOUCH_EVERY)
    return;
  if (!s->n_touches) s->touches_since = lb_clock_seconds();
  s->touches[s->n_touches++] = lb_db_id(key);
}

static lb_status flush(lb_store *s);

static bool get_here(lb_store *s, lb_hash128 key, lb_span request,
                     lb_store_found *out) {
  found_row row = {0};
  lb_status st = LB_OK;
  if (!lb_inside_ready(s)) return false;
  int rc = find(&s->db, key, request, out, &row);
  if (rc && lb_inside_trouble(
                s, rc, &st))  // a file that was rebuilt may have it still
    find(&s->db, key, request, out, &row);
  lb_status_drop(st);
  if (!row.hit) return false;
  s->stats.hits++;
  note_touch(s, key, row.used);
  if (s->n_touches == LB_MAX_TOUCHES ||
      (s->n_touches && lb_clock_seconds() - s->touches_since > TOUCH_EVERY))
    lb_status_drop(flush(s));
  return true;
}

static bool get_below(lb_store *s, lb_layer *l, lb_hash128 key, lb_span request,
                      lb_store_found *out) {
  found_row row = {0};
  if (!lb_inside_layer_ready(s, l)) return false;
  int rc = find(&l->db, key, request, out, &row);
  if (rc) {
    lb_status st = lb_inside_fault_error(&l->db, rc, l->path);
    warn(s, 16 + (unsigned)(l - s->layers), st);
    lb_status_drop(st);
    *(lb_db_fault(rc) == LB_FAULT_DAMAGED ? &s->stats.corrupt
                                          : &s->stats.failures) += 1;
  }
  s->stats.hits_below += row.hit;
  return row.hit;
}

bool lb_store_get(lb_store *s, lb_hash128 key, lb_span request,
                  lb_store_found *out) {
  *out = (lb_store_found){0};
  lb_lock_take(&s->lock);
  double start = lb_clock_seconds();
  bool hit = get_here(s, key, request, out);
  for (size_t i = 0; !hit && i < s->n_layers; i++)
    hit = get_below(s, &s->layers[i], key, request, out);
  s->stats.misses += !hit;
  s->stats.get_ns += ns_since(start);
  lb_lock_give(&s->lock);
  return hit;
}

// -- writing ------------------------------------------------------------------

static int write_notes(lb_store *s) {
  int rc = lb_totals_write(s);
  for (size_t i = 0; !rc && i < s->n_touches; i++) {
    sqlite3_stmt *stmt = lb_db_use(&s->db, LB_Q_TOUCH, &rc);
    if (!stmt) return rc;
    s->sqlite.bind_int64(stmt, 2, time(NULL));
    rc = lb_db_do_id(&s->db, LB_Q_TOUCH, s->touches[i]);
  }
  return rc;
}

static void forget_notes(lb_store *s) {
  s->n_touches = 0;
  s->noted = s->stats;
}

// Down to nine tenths, so that not every put has to.
int lb_inside_evict(lb_store *s, int64_t but, uint64_t *evicted) {
  int64_t bytes = 0, oldest;
  int rc = lb_db_bytes(&s->db, &bytes);
  if (rc || (uint64_t)bytes <= s->capacity) return rc;
  uint64_t enough = s->capacity - s->capacity / 10;
  while (!rc && (uint64_t)bytes > enough) {
    rc = lb_db_number(&s->db, LB_Q_OLDEST, &oldest);
    if (rc || oldest == but || !oldest) break;
    rc = lb_db_do_id(&s->db, LB_Q_DROP, oldest);
    if (!rc) rc = lb_db_bytes(&s->db, &bytes);
    ++*evicted;
  }
  return rc;
}

static int put_once(lb_store *s, const lb_store_entry *e) {
  lb_store_stats before = s->stats;
  int rc = lb_db_do(&s->db, LB_Q_BEGIN);
  if (!rc) rc = lb_db_write(&s->db, LB_Q_PUT, e);
  if (!rc) rc = lb_inside_evict(s, lb_db_id(e->key), &s->stats.evictions);
  s->stats.insertions++;
  if (!rc) rc = write_notes(s);
  if (!rc) rc = lb_db_do(&s->db, LB_Q_COMMIT);
  if (rc)
    s->stats = before;
  else
    forget_notes(s);
  return rc;
}

// Somebody may have removed the file meanwhile.
static void notice_moved(lb_store *s) {
  int moved = 0;
  if (!s->db.handle || !s->writable) return;
  s->sqlite.file_control(s->db.handle, "main", SQLITE_FCNTL_HAS_MOVED, &moved);
  if (!moved) return;
  lb_db_close(&s->db);
  lb_leases_close(&s->held);
}

lb_status lb_inside_writable(lb_store *s) {
  notice_moved(s);
  if (!lb_inside_ready(s)) return not_ready(s);
  if (!s->writable) return lb_error(LB_IO, "'%s' cannot be written", s->folder);
  return LB_OK;
}

// Tries again once if the file was rebuilt.
#define TWICE(s, call, st)                                              \
  do {                                                                  \
    int rc_ = (call);                                                   \
    if (rc_ && lb_inside_trouble(s, rc_, st)) {                         \
      rc_ = (call);                                                     \
      if (rc_) *(st) = lb_inside_fault_error(&(s)->db, rc_, (s)->path); \
      if (rc_) roll_back(s);                                            \
    }                                                                   \
  } while (0)

static lb_status put(lb_store *s, const lb_store_entry *given) {
  lb_status st = LB_OK;
  lb_store_entry e = *given;
  e.created = e.used = time(NULL);
  LB_TRY(lb_inside_writable(s));
  if ((uint64_t)lb_entry_bytes(&e) > s->capacity / 2)
    return lb_error(LB_INVALID, "%lld bytes are too many for a store of %llu",
                    (long long)lb_entry_bytes(&e),
                    (unsigned long long)s->capacity);
  TWICE(s, put_once(s, &e), &st);
  return st;
}

lb_status lb_store_put(lb_store *s, const lb_store_entry *e) {
  lb_lock_take(&s->lock);
  double start = lb_clock_seconds();
  lb_status st = put(s, e);
  s->stats.put_ns += ns_since(start);
  lb_lock_give(&s->lock);
  return st;
}

static lb_status drop(lb_store *s, lb_hash128 key) {
  lb_status st = LB_OK;
  LB_TRY(lb_inside_writable(s));
  TWICE(s, lb_db_do_id(&s->db, LB_Q_DROP, lb_db_id(key)), &st);
  s->stats.corrupt++;
  return st;
}

lb_status lb_store_drop(lb_store *s, lb_hash128 key) {
  lb_lock_take(&s->lock);
  lb_status st = drop(s, key);
  lb_lock_give(&s->lock);
  return st;
}

static int flush_once(lb_store *s) {
  int rc = lb_db_do(&s->db, LB_Q_BEGIN);
  if (!rc) rc = write_notes(s);
  if (!rc) rc = lb_db_do(&s->db, LB_Q_COMMIT);
  return rc;
}

static lb_status flush(lb_store *s) {
  lb_status st = LB_OK;
  if (!s->n_touches && !lb_totals_lack(s)) return LB_OK;
  LB_TRY(lb_inside_writable(s));
  TWICE(s, flush_once(s), &st);
  forget_notes(s);  // a use that is not noted does little harm
  return st;
}

lb_status lb_store_flush(lb_store *s) {
  lb_lock_take(&s->lock);
  lb_status st = flush(s);
  lb_lock_give(&s->lock);
  return st;
}

void lb_store_free(lb_store *s) {
  if (!s) return;
  lb_status_drop(lb_store_flush(s));
  close_all(s);
  lb_leases_close(&s->held);
  lb_lock_fini(&s->lock);
  free_all(s);
}

// -- leases and verdicts ------------------------------------------------------

lb_lease lb_store_lease(lb_store *s, lb_hash128 key, double seconds) {
  lb_lease lease = LB_LEASE_TAKEN;
  lb_lock_take(&s->lock);
  notice_moved(s);
  if (lb_inside_ready(s)) lease = lb_leases_take(&s->held, key, seconds);
  *(lease == LB_LEASE_TAKEN ? &s->stats.leases : &s->stats.refusals) += 1;
  lb_lock_give(&s->lock);
  return lease;
}

void lb_store_release(lb_store *s, lb_hash128 key) {
  lb_lock_take(&s->lock);
  lb_leases_give(&s->held, key);
  lb_lock_give(&s->lock);
}

static int read_verdict(lb_store *s, lb_hash128 key, const char *processor,
                        int64_t *out) {
  int rc;
  sqlite3_stmt *stmt = lb_db_use(&s->db, LB_Q_VERDICT, &rc);
  if (!stmt) return rc;
  s->sqlite.bind_int64(stmt, 1, lb_db_id(key));
  s->sqlite.bind_text(stmt, 2, processor, -1, SQLITE_TRANSIENT);
  return lb_db_number(&s->db, LB_Q_VERDICT, out);
}

lb_verdict lb_store_verdict(lb_store *s, lb_hash128 key,
                            const char *processor) {
  int64_t verdict = 0;
  lb_status st = LB_OK;
  lb_lock_take(&s->lock);
  if (lb_inside_ready(s))
    TWICE(s, read_verdict(s, key, processor, &verdict), &st);
  lb_lock_give(&s->lock);
  lb_status_drop(st);
  return verdict == LB_VERDICT_KEPT || verdict == LB_VERDICT_DEMOTED
             ? (lb_verdict)verdict
             : LB_VERDICT_NONE;
}

static int write_verdict(lb_store *s, lb_hash128 key, const char *processor,
                         lb_verdict verdict) {
  int rc;
  sqlite3_stmt *stmt = lb_db_use(&s->db, LB_Q_JUDGE, &rc);
  if (!stmt) return rc;
  s->sqlite.bind_text(stmt, 2, processor, -1, SQLITE_TRANSIENT);
  s->sqlite.bind_int64(stmt, 3, verdict);
  return lb_db_do_id(&s->db, LB_Q_JUDGE, lb_db_id(key));
}

static lb_status judge(lb_store *s, lb_hash128 key, const char *processor,
                       lb_verdict verdict) {
  lb_status st = LB_OK;
  LB_TRY(lb_inside_writable(s));
  TWICE(s, write_verdict(s, key, processor, verdict), &st);
  return st;
}

lb_status lb_store_judge(lb_store *s, lb_hash128 key, const char *processor,
                         lb_verdict verdict) {
  lb_lock_take(&s->lock);
  lb_status st = judge(s, key, processor, verdict);
  lb_lock_give(&s->lock);
  return st;
}

void lb_store_get_stats(lb_store *s, lb_store_stats *out) {
  int64_t n = 0;
  lb_lock_take(&s->lock);
  *out = s->stats;
  if (lb_inside_ready(s)) {
    if (!lb_db_number(&s->db, LB_Q_COUNT_ROWS, &n)) out->entries = (uint64_t)n;
    if (!lb_db_bytes(&s->db, &n)) out->bytes = (uint64_t)n;
  }
  lb_lock_give(&s->lock);
}
