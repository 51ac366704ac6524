// store/inside.h -- a store from inside: for the files of this room alone.
#ifndef LB_STORE_INSIDE_H
#define LB_STORE_INSIDE_H

#include "base/lock.h"
#include "store/database.h"
#include "store/lease.h"

#define LB_MAX_TOUCHES 256

typedef struct lb_layer {
  char *path;  // owned
  lb_db db;
  bool tried;
} lb_layer;

struct lb_store {
  lb_lock lock;                  // first: hooks are given it. Guards all below
  char *folder;                  // owned; NULL: none
  char *path, *leases, *beside;  // owned: files in it
  lb_layer layers[LB_STORE_MAX_LAYERS];
  size_t n_layers;
  uint64_t capacity;
  const lb_log *log;
  lb_sqlite sqlite;
  bool loaded;
  lb_db db;           // the folder's file
  bool writable;      // it is not in a read-only folder
  bool off;           // the folder is not to be used, whatever happens
  double rest_until;  // of the monotonic clock
  lb_leases held;
  uint64_t generation;  // rebuilds when it was opened
  int64_t touches[LB_MAX_TOUCHES];
  size_t n_touches;
  double touches_since;
  unsigned warned;  // a bit for each kind of trouble told
  lb_store_stats stats;
  lb_store_stats noted;  // of these, in the file's totals
};

// All of these are called with the lock taken.

// Opens what is not open. False: it cannot be had; that was told and counted.
bool lb_inside_ready(lb_store *s);
bool lb_inside_layer_ready(lb_store *s, lb_layer *l);
lb_status lb_inside_writable(lb_store *s);
lb_status lb_inside_open_read_only(const lb_sqlite *q, const char *path,
                                   lb_db *out);

lb_status lb_inside_fault_error(const lb_db *db, int rc, const char *path);
// What is to be done about a failure of the folder's file. Returns true if it
// was rebuilt: then the call is worth another try.
bool lb_inside_trouble(lb_store *s, int rc, lb_status *out);
// `keep` false: rows are not carried over.
lb_status lb_inside_rebuild(lb_store *s, bool keep);

// Are there counts that the totals lack? Adds them, inside a transaction: see
// totals.c. They are noted once that is committed.
bool lb_totals_lack(const lb_store *s);
int lb_totals_write(lb_store *s);

// Drops those not used for longest, inside a transaction, once there is more
// than the capacity; not the row `but`.
int lb_inside_evict(lb_store *s, int64_t but, uint64_t *evicted);

#endif
