// store/directory.h -- the layer that is written: one SQLite file in a folder
// of the user's, with leases beside it.
#ifndef LB_STORE_DIRECTORY_H
#define LB_STORE_DIRECTORY_H

#include "store/database.h"
#include "store/layer.h"
#include "store/lease.h"

#define LB_MAX_TOUCHES 256

typedef struct lb_store_dir {
  lb_layer base;
  char *folder;                  // owned
  char *path, *leases, *beside;  // owned: files in it
  uint64_t capacity;
  lb_db db;
  bool writable;      // it is not in a read-only folder
  bool off;           // the folder is not to be used, whatever happens
  double rest_until;  // of the monotonic clock
  lb_leases held;
  uint64_t generation;  // rebuilds when it was opened
  int64_t touches[LB_MAX_TOUCHES];
  size_t n_touches;
  double touches_since;
  lb_store_stats noted;  // of the store's statistics, in the file's totals
} lb_store_dir;

lb_status lb_store_dir_new(lb_store_core *core, const lb_store_options *o,
                           lb_store_dir **out);

// Opens the file if it is not open; why it is of no use. A reason that will not
// go away is final.
lb_status lb_store_dir_open(lb_store_dir *f);
// The same. False: it cannot be had; that was told and counted.
bool lb_store_dir_ready(lb_store_dir *f);
// LB_IO unless it can be written now.
lb_status lb_store_dir_writable(lb_store_dir *f);
// What is to be done about a failure of the file. Returns true if it was
// rebuilt: then the call is worth another try.
bool lb_store_dir_trouble(lb_store_dir *f, int rc, lb_status *out);
// `keep` false: rows are not carried over.
lb_status lb_store_dir_rebuild(lb_store_dir *f, bool keep);
// Drops those not used for longest, inside a transaction, once there is more
// than the capacity; not the row `but`.
int lb_store_dir_evict(lb_store_dir *f, int64_t but, uint64_t *evicted);

lb_trial_result lb_folder_trial_result(lb_store_dir *f, lb_hash128 key,
                                       const char *processor);
lb_status lb_folder_put_trial_result(lb_store_dir *f, lb_hash128 key,
                                     const char *processor,
                                     lb_trial_result verdict);

// Are there counts that the totals lack? Adds them, inside a transaction: see
// totals.c. They are noted once that is committed.
bool lb_totals_lack(const lb_store_dir *f);
int lb_totals_write(lb_store_dir *f);

#endif
