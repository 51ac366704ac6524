// store/repair.h -- a damaged file made whole from the rows that are sound.
#ifndef LB_STORE_REPAIR_H
#define LB_STORE_REPAIR_H

#include "store/database.h"

typedef struct lb_repaired {
  uint64_t kept, lost;  // rows; those of which nothing was left are not counted
} lb_repaired;

// Rebuilds the file at `path` in place, in one transaction: others may have it
// open, and see the rows that are left. `beside` is a file that is made for it
// and removed. `keep` false: no row is looked for. The caller sees to it that
// one process at a time does this.
int lb_repair(const lb_sqlite *q, const char *path, const char *beside,
              bool keep, lb_repaired *out);

#endif
