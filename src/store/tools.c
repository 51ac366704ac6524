// store/tools.c -- maintenance of a store: list, verify, prune, export, import.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "store/store_internal.h"
#include "store/trust.h"

// Opens the file that the maintenance functions work on.
static lb_status main_file(lb_store *s, lb_db **out, const char **path) {
  lb_store_dir *f = s->directory;
  if (!f && !s->first)
    return lb_error(LB_INVALID,
                    "the store has neither a directory nor a layer");
  *out = f ? &f->db : &s->first->db;
  *path = f ? f->path : s->first->path;
  if (f ? lb_store_dir_ready(f) : lb_image_ready(s->first)) return LB_OK;
  return lb_error(LB_IO, "'%s' cannot be used", *path);
}

static lb_status writable(lb_store *s) {
  return s->directory ? lb_store_dir_writable(s->directory)
                      : lb_store_no_directory();
}

// -- listing ------------------------------------------------------------------

typedef struct store_walk {
  lb_store_each_fn *fn;
  void *user;
  uint64_t valid, corrupt;
} store_walk;

static int walk_rows(lb_db *db, store_walk *w) {
  int rc;
  bool more = true;
  lb_store_entry e;
  sqlite3_stmt *stmt = lb_db_stmt(db, LB_Q_ALL, &rc);
  if (!stmt) return rc;
  while (more && (rc = db->q->step(stmt)) == SQLITE_ROW) {
    if (!lb_db_row(db, stmt, &e)) {
      w->corrupt++;
      continue;
    }
    w->valid++;
    more = w->fn(w->user, &e);
  }
  db->q->reset(stmt);
  return rc == SQLITE_DONE || rc == SQLITE_ROW ? SQLITE_OK : rc;
}

static lb_status for_each_row(lb_store *s, store_walk *w) {
  lb_db *db;
  const char *path;
  LB_TRY(main_file(s, &db, &path));
  int rc = walk_rows(db, w);
  return rc ? lb_db_error(db, rc, path) : LB_OK;
}

lb_status lb_store_each(lb_store *s, lb_store_each_fn *fn, void *user) {
  store_walk w = {.fn = fn, .user = user};
  lb_lock_take(&s->lock);
  lb_status st = for_each_row(s, &w);
  lb_lock_give(&s->lock);
  return st;
}

// -- verifying ----------------------------------------------------------------

static bool accept_all(void *user, const lb_store_entry *e) {
  (void)user, (void)e;
  return true;
}

// Writes the first problem that SQLite finds in the file; "" if there is none.
static void integrity_error(lb_db *db, char *out, size_t size) {
  sqlite3_stmt *stmt = NULL;
  int rc = db->q->prepare_v3(db->handle, "PRAGMA integrity_check(1)", -1, 0,
                             &stmt, NULL);
  if (!rc) rc = db->q->step(stmt);
  const char *text = rc == SQLITE_ROW
                         ? (const char *)db->q->column_text(stmt, 0)
                         : lb_db_message(db, rc);
  snprintf(out, size, "%s", text && strcmp(text, "ok") != 0 ? text : "");
  for (char *p = out; *p; p++)
    if (*p == '\n') *p = ' ';
  db->q->finalize(stmt);
}

static lb_status verify(lb_store *s, lb_store_verified *out) {
  store_walk w = {.fn = accept_all};
  lb_db *db;
  const char *path;
  LB_TRY(main_file(s, &db, &path));
  integrity_error(db, out->error, sizeof out->error);
  int rc = walk_rows(db, &w);
  out->entries = w.valid;
  out->corrupt = w.corrupt;
  if (lb_db_fault(rc) == LB_FAULT_CORRUPT && !out->error[0])
    snprintf(out->error, sizeof out->error, "%s", lb_db_message(db, rc));
  else if (lb_db_fault(rc) != LB_FAULT_CORRUPT && rc)
    return lb_db_error(db, rc, path);
  return LB_OK;
}

lb_status lb_store_verify(lb_store *s, lb_store_verified *out) {
  *out = (lb_store_verified){0};
  lb_lock_take(&s->lock);
  lb_status st = verify(s, out);
  lb_lock_give(&s->lock);
  return st;
}

lb_status lb_store_repair(lb_store *s) {
  lb_lock_take(&s->lock);
  lb_status st = writable(s);
  if (!lb_failed(st)) st = lb_store_dir_rebuild(s->directory, true);
  lb_lock_give(&s->lock);
  return st;
}

// -- pruning ------------------------------------------------------------------

static int count(lb_db *db, int64_t *out) {
  return lb_db_query_int(db, LB_Q_COUNT_ROWS, out);
}

static int prune_once(lb_store_dir *f, int64_t since, uint64_t *removed) {
  int64_t before = 0, after = 0;
  uint64_t evicted = 0;
  int rc = lb_db_run(&f->db, LB_Q_BEGIN);
  if (!rc) rc = count(&f->db, &before);
  if (!rc) rc = lb_db_run_id(&f->db, LB_Q_PRUNE, since);
  if (!rc) rc = lb_store_dir_evict(f, 0, &evicted);
  if (!rc) rc = count(&f->db, &after);
  if (!rc) rc = lb_db_run(&f->db, LB_Q_COMMIT);
  if (rc) return rc;
  *removed = (uint64_t)(before - after);
  // Fails while other processes use the file; then its free pages are reused.
  lb_db_exec(&f->db, "VACUUM; PRAGMA wal_checkpoint(TRUNCATE)");
  return SQLITE_OK;
}

static lb_status prune(lb_store_dir *f, int64_t since, uint64_t bytes,
                       uint64_t *removed) {
  lb_status st = LB_OK;
  uint64_t capacity = f->capacity;
  if (bytes < f->capacity) f->capacity = bytes;
  int rc = prune_once(f, since, removed);
  if (rc) lb_store_dir_handle_fault(f, rc, &st);
  f->capacity = capacity;
  return st;
}

lb_status lb_store_prune(lb_store *s, int64_t since, uint64_t bytes,
                         uint64_t *removed) {
  *removed = 0;
  lb_lock_take(&s->lock);
  lb_status st = writable(s);
  if (!lb_failed(st)) st = prune(s->directory, since, bytes, removed);
  lb_lock_give(&s->lock);
  return st;
}

// -- export and import --------------------------------------------------------

typedef struct export_state {
  lb_db to;
  int rc;
  uint64_t written;
} export_state;

static bool copy_row(void *user, const lb_store_entry *e) {
  export_state *c = user;
  c->rc = lb_db_write(&c->to, LB_Q_PUT_NEW, e);
  c->written += !c->rc;
  return !c->rc;
}

// Writes all valid rows to the new file `part`; corrupt rows are left out.
static lb_status export_to(lb_store *s, const char *part, export_state *c) {
  store_walk w = {.fn = copy_row, .user = c};
  int rc = lb_db_open(&s->core.sqlite, part, LB_DB_WRITE, &c->to);
  if (!rc) rc = lb_db_exec(&c->to, "PRAGMA journal_mode=OFF");
  if (!rc) rc = lb_db_create(&c->to, false);
  if (!rc) rc = lb_db_run(&c->to, LB_Q_BEGIN);
  if (rc) return lb_db_error(&c->to, rc, part);
  LB_TRY(for_each_row(s, &w));
  rc = c->rc ? c->rc : lb_db_run(&c->to, LB_Q_COMMIT);
  return rc ? lb_db_error(&c->to, rc, part) : LB_OK;
}

static lb_status export_file(lb_store *s, const char *path, uint64_t *written) {
  lb_db *db;
  const char *from;
  char *part = NULL;
  export_state c = {0};
  LB_TRY(main_file(s, &db, &from));
  if (asprintf(&part, "%s.part", path) < 0) return lb_oom();
  unlink(part);
  lb_status st = export_to(s, part, &c);
  lb_db_close(&c.to);
  if (!lb_failed(st) && rename(part, path))
    st = lb_error(LB_IO, "cannot write '%s'", path);
  if (lb_failed(st)) unlink(part);
  if (!lb_failed(st)) *written = c.written;
  free(part);
  return st;
}

lb_status lb_store_export(lb_store *s, const char *path, uint64_t *written) {
  *written = 0;
  lb_lock_take(&s->lock);
  lb_status st = export_file(s, path, written);
  lb_lock_give(&s->lock);
  return st;
}

typedef struct import_state {
  lb_store_dir *to;
  lb_store_imported *out;
  int rc;
} import_state;

static bool add_row(void *user, const lb_store_entry *e) {
  import_state *i = user;
  lb_db *db = &i->to->db;
  i->rc = lb_db_write(db, LB_Q_PUT_NEW, e);
  bool added = !i->rc && db->q->changes(db->handle) > 0;
  *(added ? &i->out->added : &i->out->already_present) += !i->rc;
  return !i->rc;
}

static int import_rows(lb_store_dir *f, lb_db *from, lb_store_imported *out) {
  import_state i = {.to = f, .out = out};
  store_walk w = {.fn = add_row, .user = &i};
  uint64_t evicted = 0;
  int rc = lb_db_run(&f->db, LB_Q_BEGIN);
  if (!rc) rc = walk_rows(from, &w);
  if (!rc) rc = i.rc;
  if (!rc) rc = lb_store_dir_evict(f, 0, &evicted);
  if (!rc) rc = lb_db_run(&f->db, LB_Q_COMMIT);
  f->base.core->stats.insertions += out->added;
  f->base.core->stats.evictions += evicted;
  out->corrupt = w.corrupt;
  return rc;
}

static lb_status import_file(lb_store *s, const char *path,
                             lb_store_imported *out) {
  lb_db from = {0};
  bool exists;
  LB_TRY(writable(s));
  lb_store_dir *f = s->directory;
  LB_TRY(lb_trust_file(path, true, &exists));
  if (!exists) return lb_error(LB_IO, "there is no file '%s'", path);
  lb_status st = lb_db_open_immutable(&f->base.core->sqlite, path, &from);
  if (!lb_failed(st)) {
    int rc = import_rows(f, &from, out);
    if (rc) {
      st = lb_db_error(&f->db, rc, path);
      if (!f->db.q->get_autocommit(f->db.handle))
        lb_db_run(&f->db, LB_Q_ROLLBACK);
    }
  }
  lb_db_close(&from);
  return st;
}

lb_status lb_store_import(lb_store *s, const char *path,
                          lb_store_imported *out) {
  *out = (lb_store_imported){0};
  lb_lock_take(&s->lock);
  lb_status st = import_file(s, path, out);
  lb_lock_give(&s->lock);
  return st;
}
