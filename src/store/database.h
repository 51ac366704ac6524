// store/database.h -- one connection to one file of kernels.
//
// The only place that knows the tables. Functions return SQLite's codes, which
// lb_db_fault sorts by what can be done about them. One thread at a time.
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
  LB_Q_KEEP,  // a put of what is not there yet
  LB_Q_TOUCH,
  LB_Q_DROP,
  LB_Q_OLDEST,
  LB_Q_COUNT_ROWS,
  LB_Q_ALL,
  LB_Q_PRUNE,  // those used before
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
  sqlite3_stmt *stmts[LB_QUERIES];  // owned; made at first use
  double patience;                  // seconds to wait for a lock
  double waits_since;               // of the monotonic clock
} lb_db;

typedef enum lb_db_mode {
  LB_DB_WRITE,      // made if it is not there
  LB_DB_READ,       // among writers
  LB_DB_IMMUTABLE,  // nobody writes it: no lock, no file beside it
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

// After a failure `out` may have a handle, to tell the message; close it.
int lb_db_open(const lb_sqlite *q, const char *path, lb_db_mode mode,
               lb_db *out);
void lb_db_close(lb_db *db);
const char *lb_db_message(const lb_db *db, int rc);

typedef enum lb_db_kind {
  LB_DB_OURS,
  LB_DB_EMPTY,
  LB_DB_CORRUPT,  // was ours, but its parts do not agree
  LB_DB_LATER,    // of a later version of Limber
  LB_DB_EARLIER,  // of an earlier one
  LB_DB_FOREIGN,  // somebody else's database
} lb_db_kind;

// What is in the file. *version is what it says of itself.
int lb_db_look(lb_db *db, lb_db_kind *out, int64_t *version);
// Why a file of that kind is not used.
lb_status lb_db_kind_error(lb_db_kind kind, int64_t version, const char *path);
// Opens a file that nobody writes; LB_INVALID, LB_UNSUPPORTED: it is not one of
// ours. After a failure, close it.
lb_status lb_db_open_immutable(const lb_sqlite *q, const char *path,
                               lb_db *out);
// A failure as a status that names the file.
lb_status lb_db_error(const lb_db *db, int rc, const char *path);
// The tables, in an empty file. `shared`: for many processes at once.
int lb_db_create(lb_db *db, bool shared);
// Lets many processes use it at once, if that is not so already.
int lb_db_share(lb_db *db);
int lb_db_exec(lb_db *db, const char *sql);

// A statement, reset, or NULL and the code in *rc. It is the caller's until it
// resets it.
sqlite3_stmt *lb_db_use(lb_db *db, lb_db_query which, int *rc);
// Runs a statement that gives no rows. Consumes a failed use.
int lb_db_do(lb_db *db, lb_db_query which);
int lb_db_do_id(lb_db *db, lb_db_query which, int64_t id);
// The first column of the first row; 0 if there is none.
int lb_db_number(lb_db *db, lb_db_query which, int64_t *out);

// Bytes of the file that are in use.
int lb_db_bytes(lb_db *db, int64_t *out);

// -- rows

static inline int64_t lb_db_id(lb_hash128 key) { return (int64_t)key.hi; }

// LB_Q_PUT or LB_Q_KEEP. created and used are the entry's.
int lb_db_write(lb_db *db, lb_db_query which, const lb_store_entry *e);
// The row that `stmt` of GET or ALL stands at, valid until it moves on. False:
// it is not what was put.
bool lb_db_row(lb_db *db, sqlite3_stmt *stmt, lb_store_entry *out);

// Of all that must not change; the columns in the order of the table.
uint64_t lb_entry_sum(const lb_store_entry *e);
int64_t lb_entry_bytes(const lb_store_entry *e);

typedef struct lb_found_row {
  bool hit;
  int64_t used;
} lb_found_row;
// SQLITE_OK with a hit or without; SQLITE_CORRUPT for a row that is not sound.
int lb_db_find(lb_db *db, lb_hash128 key, lb_span request, lb_store_found *out,
               lb_found_row *row);

#define LB_ROW_COLUMNS 13  // without id
// Reads a row from its columns, given as spans and integers. See repair.c.
typedef struct lb_row {
  int64_t number[LB_ROW_COLUMNS];
  lb_span bytes[LB_ROW_COLUMNS];  // data NULL: it is a number
} lb_row;
// False: its checksum is wrong. Texts must be followed by a NUL.
bool lb_row_entry(const lb_row *row, lb_store_entry *out);

#endif
