// store/directory.h -- the writable layer: one SQLite file in a directory of
// the user, and a file of leases next to it.
#ifndef LB_STORE_DIRECTORY_H
#define LB_STORE_DIRECTORY_H

#include "store/database.h"
#include "store/layer.h"
#include "store/lease.h"

#define LB_MAX_TOUCHES 256

typedef struct lb_store_dir {
  lb_layer base;
  char *directory;                  // owned
  char *path, *leases, *temp_path;  // owned: paths of files in `directory`
  uint64_t capacity;
  lb_db db;
  bool writable;    // false: the directory is read-only
  bool disabled;    // permanently: the directory is not used any more
  double retry_at;  // monotonic clock, seconds; the file is not used before
  lb_leases held;
  uint64_t generation;              // count of rebuilds when it was opened
  int64_t touches[LB_MAX_TOUCHES];  // ids whose last use is to be written
  size_t n_touches;
  double touches_since;          // monotonic clock, seconds
  lb_store_stats written_stats;  // the part already in the file's totals
} lb_store_dir;

lb_status lb_store_dir_new(lb_store_core *core, const lb_store_options *o,
                           lb_store_dir **out);

// Opens the file unless it is open. An error says why it cannot be used; an
// LB_INVALID or LB_UNSUPPORTED error disables the directory for good.
lb_status lb_store_dir_open(lb_store_dir *f);
// The same, but returns false on failure, after logging and counting it.
bool lb_store_dir_ready(lb_store_dir *f);
// LB_IO unless the file can be written now.
lb_status lb_store_dir_writable(lb_store_dir *f);
// Reacts to a failed call: rolls back, counts, warns, and rebuilds a corrupt
// file. True: the file was rebuilt, and the caller should retry once.
bool lb_store_dir_handle_fault(lb_store_dir *f, int rc, lb_status *out);
// `recover` false: the new file is empty.
lb_status lb_store_dir_rebuild(lb_store_dir *f, bool recover);
// If the file exceeds the capacity, drops the least recently used rows, except
// the row with id `except`. Call inside a transaction.
int lb_store_dir_evict(lb_store_dir *f, int64_t except, uint64_t *evicted);

lb_trial_result lb_store_dir_trial_result(lb_store_dir *f, lb_hash128 key,
                                          const char *processor);
lb_status lb_store_dir_put_trial_result(lb_store_dir *f, lb_hash128 key,
                                        const char *processor,
                                        lb_trial_result result);

// See totals.c. Are there counts that are not in the file's totals yet?
bool lb_totals_pending(const lb_store_dir *f);
// Adds them. Call inside a transaction; after its commit the caller updates
// written_stats.
int lb_totals_write(lb_store_dir *f);

#endif
