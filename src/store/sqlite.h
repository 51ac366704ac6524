// store/sqlite.h -- SQLite, loaded when a store is first opened.
//
// Linking it would cost every process that loads Limber about 0.17 ms, even if
// it stores no kernels, and Limber could not be loaded on a machine without it.
// See decision 10.
#ifndef LB_STORE_SQLITE_H
#define LB_STORE_SQLITE_H

#include <sqlite3.h>

#include "base/status.h"

#define LB_SQLITE_FUNCTIONS(F) \
  F(backup_finish)             \
  F(backup_init)               \
  F(backup_step)               \
  F(bind_blob)                 \
  F(bind_int64)                \
  F(bind_text)                 \
  F(busy_handler)              \
  F(changes)                   \
  F(close_v2)                  \
  F(column_blob)               \
  F(column_bytes)              \
  F(column_int64)              \
  F(column_text)               \
  F(column_type)               \
  F(db_config)                 \
  F(errmsg)                    \
  F(errstr)                    \
  F(exec)                      \
  F(extended_errcode)          \
  F(extended_result_codes)     \
  F(file_control)              \
  F(finalize)                  \
  F(get_autocommit)            \
  F(libversion_number)         \
  F(open_v2)                   \
  F(prepare_v3)                \
  F(reset)                     \
  F(step)

typedef struct lb_sqlite {
#define F(name) __typeof__(sqlite3_##name) *name;
  LB_SQLITE_FUNCTIONS(F)
#undef F
} lb_sqlite;

// LB_UNSUPPORTED: SQLite is not installed or is too old. It is never unloaded.
lb_status lb_sqlite_load(lb_sqlite *out);

#endif
