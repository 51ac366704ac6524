// store/database.h -- one connection to one database file of kernels.
//
// This is the only module that knows the tables. Functions return SQLite's
// codes, which lb_db_fault classifies by how the caller can react. A connection
// may be used by one thread at a time.
#ifndef LB_STORE_DATABASE_H
#define LB_STORE_DATABASE_H

#include <stdbool.h>

#include "store/sqlite.h"
#include "store/store.h"

#define LB_DB_PAGE 4096
#define LB_DB_ID 0x4c696d62  // application_id: "Limb"

typedef enum lb_db_query {
  LB_Q_GET,
  LB_Q_PUT,
  LB_Q_PUT_NEW,  // put, unless the id exists already
  LB_Q_TOUCH,
  LB_Q_DROP,
  LB_Q_OLDEST,
  LB_Q_COUNT_ROWS,
  LB_Q_ALL,
  LB_Q_PRUNE,  // delete entries last used before a time
  LB_Q_PAGES,
  LB_Q_FREE_PAGES,
  LB_Q_TRIAL_RESULT,
  LB_Q_PUT_TRIAL_RESULT,
  LB_Q_ADD,
  LB_Q_TOTAL,
  LB_Q_BEGIN,
  LB_Q_COMMIT,
  LB_Q_ROLLBACK,
  LB_QUERIES,
} lb_db_query;

typedef struct lb_db {              // {0}: closed
  const lb_sqlite *q;               // borrowed
  sqlite3 *handle;                  // owned
  sqlite3_stmt *stmts[LB_QUERIES];  // owned; prepared at first use
  double lock_timeout;              // seconds to wait for a lock
  double wait_start;                // monotonic clock, seconds
} lb_db;

typedef enum lb_db_mode {
  LB_DB_WRITE,      // creates the file if it is missing
  LB_DB_READ,       // other processes may write
  LB_DB_IMMUTABLE,  // no process writes: no locks, no -wal or -shm file
} lb_db_mode;

typedef enum lb_fault {
  LB_FAULT_NONE,
  LB_FAULT_CORRUPT,
  LB_FAULT_BUSY,
  LB_FAULT_FULL,
  LB_FAULT_READONLY,
  LB_FAULT_OTHER,
} lb_fault;
lb_fault lb_db_fault(int rc);

// After a failure `out` may hold a handle for lb_db_message; close it.
int lb_db_open(const lb_sqlite *q, const char *path, lb_db_mode mode,
               lb_db *out);
void lb_db_close(lb_db *db);
const char *lb_db_message(const lb_db *db, int rc);

typedef enum lb_db_kind {
  LB_DB_OURS,  // a store of version LB_STORE_VERSION
  LB_DB_EMPTY,
  LB_DB_CORRUPT,  // a store whose header and tables contradict each other
  LB_DB_LATER,    // a store of a later version of Limber
  LB_DB_EARLIER,  // a store of an earlier version
  LB_DB_FOREIGN,  // a database of another application
} lb_db_kind;

// Classifies the file. *version is the store version that it states.
int lb_db_identify(lb_db *db, lb_db_kind *out, int64_t *version);
// The error that says why a file of that kind, not LB_DB_OURS, is not used.
lb_status lb_db_kind_error(lb_db_kind kind, int64_t version, const char *path);
// Opens a file that no process writes. LB_INVALID or LB_UNSUPPORTED: it is not
// a store of this version. Close `out` after a failure too.
lb_status lb_db_open_immutable(const lb_sqlite *q, const char *path,
                               lb_db *out);
// Converts a failed SQLite code to a status that names the file.
lb_status lb_db_error(const lb_db *db, int rc, const char *path);
// Creates the tables in an empty file. `shared`: in WAL mode, for concurrent
// use by many processes.
int lb_db_create(lb_db *db, bool shared);
// Switches to WAL mode, unless the file is in that mode already.
int lb_db_enable_wal(lb_db *db);
int lb_db_exec(lb_db *db, const char *sql);

// Returns a prepared statement after a reset, or NULL and the code in *rc. The
// caller owns it until the caller resets it.
sqlite3_stmt *lb_db_stmt(lb_db *db, lb_db_query which, int *rc);
// Runs a statement that returns no rows, with the parameters bound so far.
int lb_db_run(lb_db *db, lb_db_query which);
int lb_db_run_id(lb_db *db, lb_db_query which, int64_t id);
// Returns the first column of the first row; 0 if there is no row.
int lb_db_query_int(lb_db *db, lb_db_query which, int64_t *out);

// Bytes of the file in use, without free pages.
int lb_db_bytes(lb_db *db, int64_t *out);

// -- rows

static inline int64_t lb_db_id(lb_hash128 key) { return (int64_t)key.hi; }

// Writes a row with LB_Q_PUT or LB_Q_PUT_NEW; stores e->created and e->used as
// given.
int lb_db_write(lb_db *db, lb_db_query which, const lb_store_entry *e);
// Reads the current row of a GET or ALL statement; *out is valid until the
// statement's next step or reset. False: the row is corrupt.
bool lb_db_row(lb_db *db, sqlite3_stmt *stmt, lb_store_entry *out);

// Covers everything that must not change: all fields except `used`.
uint64_t lb_entry_checksum(const lb_store_entry *e);
int64_t lb_entry_bytes(const lb_store_entry *e);

typedef struct lb_row_info {
  bool hit;
  int64_t used;
} lb_row_info;
// Looks up `key`. SQLITE_OK for a hit and for a miss; SQLITE_CORRUPT if the row
// is corrupt.
int lb_db_find(lb_db *db, lb_hash128 key, lb_span request, lb_store_hit *out,
               lb_row_info *row);

#define LB_ROW_COLUMNS 13  // without id
// The columns of a row in table order, however they were read: see repair.c.
typedef struct lb_row {
  int64_t number[LB_ROW_COLUMNS];
  lb_span bytes[LB_ROW_COLUMNS];  // data NULL: the column is an integer
} lb_row;
// Converts a row to an entry. False: a column has a wrong type or the checksum
// does not match. Text columns must be NUL-terminated.
bool lb_row_entry(const lb_row *row, lb_store_entry *out);

#endif
