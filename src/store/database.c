// store/database.c -- the tables, their statements, and reading of rows.
//
// kernel        one row per entry. Its id is the first half of the key, so the
//               table itself is the index by key and no separate index can
//               contradict it. Two keys with the same id replace each other;
//               a lookup compares the full key.
// trial_result  trial results by kernel and processor
// total         statistics summed over all processes: see totals.c
// about         a second copy of the version, because a version that is only in
//               the header cannot be told from a flipped bit. This table keeps
//               its name in every version: it is how other versions are
//               recognised.
#include "store/database.h"

#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/strbuf.h"

#define COLUMNS                                                           \
  "key, form, spec, assume, target, reusable, bytes, created, used, sum," \
  " request, meta, object"

enum {  // of COLUMNS
  C_KEY,
  C_FORM,
  C_SPEC,
  C_ASSUME,
  C_TARGET,
  C_REUSABLE,
  C_BYTES,
  C_CREATED,
  C_USED,
  C_SUM,
  C_REQUEST,
  C_META,
  C_OBJECT,
};
_Static_assert(C_OBJECT + 1 == LB_ROW_COLUMNS, "repair.c reads this many");

static const char schema[] =
    "CREATE TABLE kernel("
    "id INTEGER PRIMARY KEY, key BLOB NOT NULL, form TEXT NOT NULL,"
    " spec TEXT NOT NULL, assume TEXT NOT NULL, target TEXT NOT NULL,"
    " reusable INTEGER NOT NULL, bytes INTEGER NOT NULL,"
    " created INTEGER NOT NULL, used INTEGER NOT NULL, sum INTEGER NOT NULL,"
    " request BLOB NOT NULL, meta BLOB NOT NULL, object BLOB NOT NULL);"
    "CREATE TABLE trial_result("
    "id INTEGER NOT NULL, processor TEXT NOT NULL, result INTEGER NOT NULL,"
    " PRIMARY KEY(id, processor)) WITHOUT ROWID;"
    "CREATE TABLE total(name TEXT PRIMARY KEY, n INTEGER NOT NULL)"
    " WITHOUT ROWID;"
    "CREATE TABLE about(version INTEGER NOT NULL);"
    "CREATE INDEX kernel_used ON kernel(used);";

static const char *const queries[LB_QUERIES] = {
    [LB_Q_GET] = "SELECT " COLUMNS " FROM kernel WHERE id=?1",
    [LB_Q_PUT] = "INSERT OR REPLACE INTO kernel(id, " COLUMNS
                 ") VALUES(?14,?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13)",
    [LB_Q_PUT_NEW] = "INSERT OR IGNORE INTO kernel(id, " COLUMNS
                     ") VALUES(?14,?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13)",
    [LB_Q_TOUCH] = "UPDATE kernel SET used=?2 WHERE id=?1 AND used<?2",
    [LB_Q_DROP] = "DELETE FROM kernel WHERE id=?1",
    [LB_Q_OLDEST] = "SELECT id FROM kernel ORDER BY used LIMIT 1",
    [LB_Q_COUNT_ROWS] = "SELECT count(*) FROM kernel",
    [LB_Q_ALL] = "SELECT " COLUMNS " FROM kernel NOT INDEXED",
    [LB_Q_PRUNE] = "DELETE FROM kernel WHERE used<?1",
    [LB_Q_PAGES] = "PRAGMA page_count",
    [LB_Q_FREE_PAGES] = "PRAGMA freelist_count",
    [LB_Q_TRIAL_RESULT] =
        "SELECT result FROM trial_result WHERE id=?1 AND processor=?2",
    [LB_Q_PUT_TRIAL_RESULT] =
        "INSERT OR REPLACE INTO trial_result VALUES(?1,?2,?3)",
    [LB_Q_ADD] = ("INSERT INTO total VALUES(?1,?2)"
                  " ON CONFLICT(name) DO UPDATE SET n=n+excluded.n"),
    [LB_Q_TOTAL] = "SELECT n FROM total WHERE name=?1",
    [LB_Q_BEGIN] = "BEGIN IMMEDIATE",
    [LB_Q_COMMIT] = "COMMIT",
    [LB_Q_ROLLBACK] = "ROLLBACK",
};

lb_fault lb_db_fault(int rc) {
  switch (rc & 0xff) {
    case SQLITE_OK:
    case SQLITE_ROW:
    case SQLITE_DONE: return LB_FAULT_NONE;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
    case SQLITE_FORMAT:
    case SQLITE_ERROR:  // our statements are valid, so the tables are not
    case SQLITE_CONSTRAINT:
    case SQLITE_MISMATCH: return LB_FAULT_CORRUPT;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_PROTOCOL: return LB_FAULT_BUSY;
    case SQLITE_FULL: return LB_FAULT_FULL;
    case SQLITE_READONLY: return LB_FAULT_READONLY;
    default: return LB_FAULT_OTHER;
  }
}

// -- opening ------------------------------------------------------------------

// SQLite's busy handler. Sleeps 0.3 to 2.3 ms; the varying delay keeps any one
// of many waiting processes from starving.
static int wait_for_lock(void *user, int attempt) {
  lb_db *db = user;
  double t = lb_clock_seconds();
  if (attempt == 0) db->wait_start = t;
  if (t - db->wait_start > db->lock_timeout) return 0;
  long delay = 300000 + (long)(t * 1e9) % 2000000;
  nanosleep(&(struct timespec){.tv_nsec = delay}, NULL);
  return 1;
}

// Appends a path to a URI, with %XX escapes.
static void put_path(lb_strbuf *uri, const char *path) {
  for (const unsigned char *p = (const unsigned char *)path; *p; p++) {
    if ((*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') ||
        (*p >= '0' && *p <= '9') || strchr("/-_.~", *p)) {
      lb_strbuf_putc(uri, (char)*p);
    } else {
      lb_strbuf_printf(uri, "%%%02X", *p);
    }
  }
}

static int open_handle(lb_db *db, const char *path, lb_db_mode mode) {
  static const int flags[] = {
      [LB_DB_WRITE] = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE,
      [LB_DB_READ] = SQLITE_OPEN_READONLY,
      [LB_DB_IMMUTABLE] = SQLITE_OPEN_READONLY,
  };
  lb_strbuf uri = {0};
  lb_strbuf_puts(&uri, *path == '/' ? "file://" : "file:");
  put_path(&uri, path);
  if (mode == LB_DB_IMMUTABLE) lb_strbuf_puts(&uri, "?immutable=1");
  int rc = SQLITE_NOMEM;
  if (!uri.failed)
    rc = db->q->open_v2(lb_strbuf_str(&uri), &db->handle,
                        flags[mode] | SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX |
                            SQLITE_OPEN_PRIVATECACHE,
                        NULL);
  lb_strbuf_fini(&uri);
  return rc;
}

int lb_db_open(const lb_sqlite *q, const char *path, lb_db_mode mode,
               lb_db *out) {
  *out = (lb_db){.q = q, .lock_timeout = 2};
  int rc = open_handle(out, path, mode);
  if (rc) return rc;
  q->extended_result_codes(out->handle, 1);
  q->busy_handler(out->handle, wait_for_lock, out);
  q->db_config(out->handle, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
#ifdef SQLITE_DBCONFIG_TRUSTED_SCHEMA
  q->db_config(out->handle, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
#endif
  return lb_db_exec(out,
                    "PRAGMA cell_size_check=ON; PRAGMA temp_store=MEMORY;"
                    "PRAGMA synchronous=NORMAL;"
                    "PRAGMA journal_size_limit=8388608");
}

void lb_db_close(lb_db *db) {
  for (int i = 0; i < LB_QUERIES; i++)
    if (db->stmts[i]) db->q->finalize(db->stmts[i]);
  if (db->handle) db->q->close_v2(db->handle);
  *db = (lb_db){0};
}

const char *lb_db_message(const lb_db *db, int rc) {
  if (db->handle && (db->q->extended_errcode(db->handle) & 0xff) == (rc & 0xff))
    return db->q->errmsg(db->handle);
  return db->q ? db->q->errstr(rc) : "SQLite is not loaded";
}

int lb_db_exec(lb_db *db, const char *sql) {
  return db->q->exec(db->handle, sql, NULL, NULL, NULL);
}

// -- statements ---------------------------------------------------------------

static int prepare(lb_db *db, const char *sql, sqlite3_stmt **out) {
  return db->q->prepare_v3(db->handle, sql, -1, SQLITE_PREPARE_PERSISTENT, out,
                           NULL);
}

sqlite3_stmt *lb_db_stmt(lb_db *db, lb_db_query which, int *rc) {
  *rc = SQLITE_OK;
  if (!db->stmts[which]) *rc = prepare(db, queries[which], &db->stmts[which]);
  if (*rc) return NULL;
  db->q->reset(db->stmts[which]);
  return db->stmts[which];
}

static int finish(lb_db *db, sqlite3_stmt *stmt) {
  int rc = db->q->step(stmt);
  int more = db->q->reset(stmt);
  return rc == SQLITE_DONE || rc == SQLITE_ROW ? more : rc;
}

int lb_db_run(lb_db *db, lb_db_query which) {
  int rc;
  sqlite3_stmt *stmt = lb_db_stmt(db, which, &rc);
  return stmt ? finish(db, stmt) : rc;
}

int lb_db_run_id(lb_db *db, lb_db_query which, int64_t id) {
  int rc;
  sqlite3_stmt *stmt = lb_db_stmt(db, which, &rc);
  if (!stmt) return rc;
  db->q->bind_int64(stmt, 1, id);
  return finish(db, stmt);
}

static int first_number(lb_db *db, sqlite3_stmt *stmt, int64_t *out) {
  int rc = db->q->step(stmt);
  *out = rc == SQLITE_ROW ? db->q->column_int64(stmt, 0) : 0;
  int more = db->q->reset(stmt);
  return rc == SQLITE_DONE || rc == SQLITE_ROW ? more : rc;
}

int lb_db_query_int(lb_db *db, lb_db_query which, int64_t *out) {
  int rc;
  *out = 0;
  sqlite3_stmt *stmt = lb_db_stmt(db, which, &rc);
  return stmt ? first_number(db, stmt, out) : rc;
}

int lb_db_bytes(lb_db *db, int64_t *out) {
  int64_t all = 0, unused = 0;
  int rc = lb_db_query_int(db, LB_Q_PAGES, &all);
  if (!rc) rc = lb_db_query_int(db, LB_Q_FREE_PAGES, &unused);
  *out = (all - unused) * LB_DB_PAGE;
  return rc;
}

// -- identifying a file -------------------------------------------------------

static int query_int(lb_db *db, const char *sql, int64_t *out) {
  sqlite3_stmt *stmt = NULL;
  *out = 0;
  int rc = prepare(db, sql, &stmt);
  if (!rc) rc = first_number(db, stmt, out);
  if (stmt) db->q->finalize(stmt);
  return rc;
}

static int identify(lb_db *db, lb_db_kind *out, int64_t *version) {
  int64_t tables = 0, id = 0, about = 0, kernels = 0;
  int rc = query_int(db, "SELECT count(*) FROM sqlite_master", &tables);
  if (!rc) rc = query_int(db, "PRAGMA user_version", version);
  if (!rc) rc = query_int(db, "PRAGMA application_id", &id);
  if (rc) return rc;
  if (!tables && !*version && !id) {
    *out = LB_DB_EMPTY;
    return SQLITE_OK;
  }
  rc = query_int(db, "SELECT count(*) FROM sqlite_master WHERE name='kernel'",
                 &kernels);
  if (rc) return rc;
  if (id != LB_DB_ID && !kernels) {
    *out = LB_DB_FOREIGN;
    return SQLITE_OK;
  }
  if (id != LB_DB_ID) return SQLITE_OK;
  rc = query_int(db, "SELECT version FROM about", &about);
  if (rc) return rc;
  if (about != *version) return SQLITE_OK;
  *out = about > LB_STORE_VERSION   ? LB_DB_LATER
         : about < LB_STORE_VERSION ? LB_DB_EARLIER
                                    : LB_DB_OURS;
  return SQLITE_OK;
}

// Reads in one transaction. Otherwise, while another process creates the
// tables, the version of the empty file could be read together with the new
// tables, and the file would seem corrupt.
int lb_db_identify(lb_db *db, lb_db_kind *out, int64_t *version) {
  *out = LB_DB_CORRUPT;
  int rc = lb_db_exec(db, "BEGIN");
  if (rc) return rc;
  rc = identify(db, out, version);
  lb_db_exec(db, "ROLLBACK");
  return rc;
}

// SQLite does not call the busy handler for this statement, because a
// concurrent reader could wait for us as well.
static int exec_with_retry(lb_db *db, const char *sql) {
  int rc, attempt = 0;
  do {
    rc = lb_db_exec(db, sql);
  } while (lb_db_fault(rc) == LB_FAULT_BUSY && wait_for_lock(db, attempt++));
  return rc;
}

int lb_db_enable_wal(lb_db *db) {
  return exec_with_retry(db, "PRAGMA journal_mode=WAL");
}

int lb_db_create(lb_db *db, bool shared) {
  lb_strbuf sql = {0};
  lb_strbuf_printf(&sql, "PRAGMA page_size=%d;", LB_DB_PAGE);
  if (shared) {
    int rc = lb_db_exec(db, lb_strbuf_str(&sql));
    if (!rc) rc = lb_db_enable_wal(db);
    lb_strbuf_fini(&sql);
    if (rc) return rc;
  }
  lb_strbuf_puts(&sql, "BEGIN IMMEDIATE;");
  lb_strbuf_puts(&sql, schema);
  lb_strbuf_printf(&sql,
                   "INSERT INTO about VALUES(%d); PRAGMA user_version=%d;"
                   "PRAGMA application_id=%d; COMMIT",
                   LB_STORE_VERSION, LB_STORE_VERSION, LB_DB_ID);
  int rc = sql.failed ? SQLITE_NOMEM : lb_db_exec(db, lb_strbuf_str(&sql));
  lb_strbuf_fini(&sql);
  if (rc && !db->q->get_autocommit(db->handle)) lb_db_run(db, LB_Q_ROLLBACK);
  return rc;
}

// -- rows ---------------------------------------------------------------------

static uint64_t sum_span(uint64_t sum, const void *data, size_t size) {
  return lb_hash_seeded(data, size, sum);
}

static uint64_t sum_text(uint64_t sum, const char *text) {
  return sum_span(sum, text, strlen(text));
}

uint64_t lb_entry_checksum(const lb_store_entry *e) {
  uint64_t numbers[] = {e->key.hi, e->key.lo, e->reusable,
                        (uint64_t)e->created};
  uint64_t sum = sum_span(0, numbers, sizeof numbers);
  sum = sum_text(sum, e->form);
  sum = sum_text(sum, e->spec);
  sum = sum_text(sum, e->assume);
  sum = sum_text(sum, e->target);
  sum = sum_span(sum, e->request.data, e->request.size);
  sum = sum_span(sum, e->meta.data, e->meta.size);
  return sum_span(sum, e->object.data, e->object.size);
}

int64_t lb_entry_bytes(const lb_store_entry *e) {
  return (int64_t)(e->object.size + e->meta.size + e->request.size);
}

// Big-endian, so that hex(key) in SQL reads like the printed key.
static void key_write(lb_hash128 key, uint8_t out[16]) {
  for (int i = 0; i < 8; i++) {
    out[i] = (uint8_t)(key.hi >> (56 - 8 * i));
    out[8 + i] = (uint8_t)(key.lo >> (56 - 8 * i));
  }
}

static lb_hash128 key_read(const uint8_t in[16]) {
  lb_hash128 key = {0};
  for (int i = 0; i < 8; i++) {
    key.hi = key.hi << 8 | in[i];
    key.lo = key.lo << 8 | in[8 + i];
  }
  return key;
}

static int bind_span(lb_db *db, sqlite3_stmt *stmt, int column, lb_span s) {
  return db->q->bind_blob(stmt, column + 1, s.size ? (const void *)s.data : "",
                          (int)s.size, SQLITE_STATIC);
}

static int bind_text(lb_db *db, sqlite3_stmt *stmt, int column,
                     const char *text) {
  return db->q->bind_text(stmt, column + 1, text, -1, SQLITE_STATIC);
}

int lb_db_write(lb_db *db, lb_db_query which, const lb_store_entry *e) {
  int rc;
  uint8_t key[16];
  sqlite3_stmt *stmt = lb_db_stmt(db, which, &rc);
  if (!stmt) return rc;
  key_write(e->key, key);
  rc |= bind_span(db, stmt, C_KEY, (lb_span){key, sizeof key});
  rc |= bind_text(db, stmt, C_FORM, e->form);
  rc |= bind_text(db, stmt, C_SPEC, e->spec);
  rc |= bind_text(db, stmt, C_ASSUME, e->assume);
  rc |= bind_text(db, stmt, C_TARGET, e->target);
  rc |= bind_span(db, stmt, C_REQUEST, e->request);
  rc |= bind_span(db, stmt, C_META, e->meta);
  rc |= bind_span(db, stmt, C_OBJECT, e->object);
  const int64_t numbers[][2] = {{C_REUSABLE, e->reusable},
                                {C_BYTES, lb_entry_bytes(e)},
                                {C_CREATED, e->created},
                                {C_USED, e->used},
                                {C_SUM, (int64_t)lb_entry_checksum(e)},
                                {LB_ROW_COLUMNS, lb_db_id(e->key)}};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
    rc |= db->q->bind_int64(stmt, (int)numbers[i][0] + 1, numbers[i][1]);
  if (rc) return SQLITE_NOMEM;
  return finish(db, stmt);
}

static bool has_text(const lb_row *row, int column) {
  const lb_span *s = &row->bytes[column];
  return s->data && strlen((const char *)s->data) == s->size;
}

static bool has_right_columns(const lb_row *row) {
  for (int c = C_FORM; c <= C_TARGET; c++)
    if (!has_text(row, c)) return false;
  for (int c = C_REUSABLE; c <= C_SUM; c++)
    if (row->bytes[c].data) return false;
  for (int c = C_REQUEST; c <= C_OBJECT; c++)
    if (!row->bytes[c].data) return false;
  return row->bytes[C_KEY].data && row->bytes[C_KEY].size == 16;
}

bool lb_row_entry(const lb_row *row, lb_store_entry *out) {
  if (!has_right_columns(row)) return false;
  *out = (lb_store_entry){
      .key = key_read(row->bytes[C_KEY].data),
      .form = (const char *)row->bytes[C_FORM].data,
      .spec = (const char *)row->bytes[C_SPEC].data,
      .assume = (const char *)row->bytes[C_ASSUME].data,
      .target = (const char *)row->bytes[C_TARGET].data,
      .reusable = row->number[C_REUSABLE] != 0,
      .created = row->number[C_CREATED],
      .used = row->number[C_USED],
      .request = row->bytes[C_REQUEST],
      .meta = row->bytes[C_META],
      .object = row->bytes[C_OBJECT],
  };
  return row->number[C_BYTES] == lb_entry_bytes(out) &&
         (uint64_t)row->number[C_SUM] == lb_entry_checksum(out);
}

// SQLite returns NULL for an empty blob; this returns a non-NULL pointer.
static lb_span column_span(lb_db *db, sqlite3_stmt *stmt, int i, int type) {
  const void *data = type == SQLITE_TEXT
                         ? (const void *)db->q->column_text(stmt, i)
                         : db->q->column_blob(stmt, i);
  int size = db->q->column_bytes(stmt, i);
  if (!data && size) return (lb_span){0};  // no memory
  return (lb_span){data ? data : (const uint8_t *)"", (size_t)size};
}

bool lb_db_row(lb_db *db, sqlite3_stmt *stmt, lb_store_entry *out) {
  lb_row row = {0};
  for (int i = 0; i < LB_ROW_COLUMNS; i++) {
    int type = db->q->column_type(stmt, i);
    if (type == SQLITE_TEXT || type == SQLITE_BLOB)
      row.bytes[i] = column_span(db, stmt, i, type);
    else
      row.number[i] = db->q->column_int64(stmt, i);
  }
  return lb_row_entry(&row, out);
}

// -- errors -------------------------------------------------------------------

static const char *const fault_names[] = {
    [LB_FAULT_CORRUPT] = "is corrupt",
    [LB_FAULT_BUSY] = "is locked by another process",
    [LB_FAULT_FULL] = "cannot grow: the disk is full",
    [LB_FAULT_READONLY] = "cannot be written",
    [LB_FAULT_OTHER] = "cannot be used",
};

lb_status lb_db_error(const lb_db *db, int rc, const char *path) {
  lb_fault fault = lb_db_fault(rc);
  if ((rc & 0xff) == SQLITE_NOMEM) return lb_oom();
  return lb_error(fault == LB_FAULT_CORRUPT ? LB_INVALID : LB_IO,
                  "'%s' %s (%s)", path, fault_names[fault],
                  lb_db_message(db, rc));
}

lb_status lb_db_kind_error(lb_db_kind kind, int64_t version, const char *path) {
  if (kind == LB_DB_LATER)
    return lb_error(LB_UNSUPPORTED,
                    "'%s' was written by a later version of Limber (file "
                    "version %lld, this one reads %d); it is left unchanged "
                    "and not used",
                    path, (long long)version, LB_STORE_VERSION);
  if (kind == LB_DB_FOREIGN)
    return lb_error(LB_INVALID,
                    "'%s' is a database, but not one of Limber's; it is left "
                    "unchanged and not used",
                    path);
  return lb_error(LB_INVALID,
                  "'%s' is not used: it is empty, corrupt or of an earlier "
                  "version of Limber (file version %lld, this one reads %d); "
                  "export it again",
                  path, (long long)version, LB_STORE_VERSION);
}

lb_status lb_db_open_immutable(const lb_sqlite *q, const char *path,
                               lb_db *out) {
  lb_db_kind kind;
  int64_t version;
  int rc = lb_db_open(q, path, LB_DB_IMMUTABLE, out);
  if (!rc) rc = lb_db_identify(out, &kind, &version);
  if (rc) return lb_db_error(out, rc, path);
  return kind == LB_DB_OURS ? LB_OK : lb_db_kind_error(kind, version, path);
}

// -- lookup -------------------------------------------------------------------

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

int lb_db_find(lb_db *db, lb_hash128 key, lb_span request, lb_store_hit *out,
               lb_row_info *row) {
  int rc;
  lb_store_entry e;
  sqlite3_stmt *stmt = lb_db_stmt(db, LB_Q_GET, &rc);
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
  if (!row->hit) lb_store_hit_fini(out);
  db->q->reset(stmt);
  return rc;
}
