// store/repair.h -- rebuilds a corrupt file from its valid rows.
#ifndef LB_STORE_REPAIR_H
#define LB_STORE_REPAIR_H

#include "store/database.h"

typedef struct lb_repair_result {
  uint64_t recovered, lost;  // rows; rows that left no trace are not counted
} lb_repair_result;

// Rebuilds the file at `path` in place in one transaction: other processes may
// have it open, and then see the recovered rows. `temp_path` names a temporary
// file, which is removed. `recover` false: no rows are recovered. The caller
// ensures that one process at a time does this.
int lb_repair(const lb_sqlite *q, const char *path, const char *temp_path,
              bool recover, lb_repair_result *out);

#endif
