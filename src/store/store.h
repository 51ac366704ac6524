// store/store.h -- kernels on disk, by key: what one process compiled, all
// find.
//
// A store is one SQLite file, `kernels.db`, in a folder of the user's, over any
// number of read-only layers (files that came with an image). It knows nothing
// of specs: an entry is a key, the full bytes that were hashed into the key, an
// object, and what goes with it.
//
// (1) Nothing here ever fails a request. What goes wrong is one warning of its
//     kind and a count; a get is then a miss, the other calls return a status
//     that may be dropped.
// (2) What a get returns was put with the same key and the same full bytes, and
//     its checksum is right. A row that is not is dropped and counted; a file
//     that is damaged is rebuilt from the rows that are sound.
// (3) Many processes may use one folder, and be killed at any moment.
// (4) A store that a later version of Limber made is left as it is, unused. So
//     are folders and files that somebody else owns or may write.
// (5) A forked child opens the file anew: see base/lock.h. For that, a call
//     here holds an lb_lock, so its caller holds none.
//
// Nothing is opened, nor SQLite loaded, before the first call that needs it.
// Calls read and write files, so they are made off the threads of requests; any
// thread may call, one call is served at a time.
#ifndef LB_STORE_STORE_H
#define LB_STORE_STORE_H

#include "base/blob.h"
#include "base/hash.h"
#include "base/log.h"

#define LB_STORE_VERSION 2
#define LB_STORE_FILE "kernels.db"
#define LB_STORE_CAPACITY (UINT64_C(256) << 20)  // bytes, by default
#define LB_STORE_MAX_LAYERS 8

typedef struct lb_store lb_store;

typedef struct lb_store_options {  // all of it is copied but the log
  const char *folder;         // made if it is not there; NULL: nothing is kept
  const char *const *layers;  // files, or folders with an LB_STORE_FILE
  size_t n_layers;            // looked at in this order, after the folder
  uint64_t capacity;          // bytes of the file; 0: LB_STORE_CAPACITY
  const lb_log *log;          // borrowed; NULL: silent
} lb_store_options;

// Fails only for lack of memory, or if there are too many layers.
lb_status lb_store_new(const lb_store_options *o, lb_store **out);
void lb_store_free(lb_store *s);  // writes what is pending; NULL is fine

// Opens what is not open yet. Why the folder is of no use, or LB_OK.
lb_status lb_store_check(lb_store *s);

typedef struct lb_store_entry {
  lb_hash128 key;
  lb_span request;  // the full bytes; all spans are borrowed
  lb_span meta;     // what is known of the object
  lb_span object;
  // For people: what it computes, takes for granted, and may run on.
  const char *form, *spec, *assume, *target;
  bool reusable;
  int64_t created, used;  // seconds since 1970; set by the store
} lb_store_entry;

typedef struct lb_store_found {  // {0}: nothing
  lb_blob object, meta;
} lb_store_found;
void lb_store_found_fini(lb_store_found *f);

// The object of `key` if its full bytes are `request`. False: it is not there,
// or cannot be had, and *out is {0}.
bool lb_store_get(lb_store *s, lb_hash128 key, lb_span request,
                  lb_store_found *out);

// Keeps a copy; an entry of the same key is replaced. Others that were not used
// for longest make room.
lb_status lb_store_put(lb_store *s, const lb_store_entry *e);

// That of these the object turned out to be bad: it is not found again.
lb_status lb_store_drop(lb_store *s, lb_hash128 key);

// -- leases: of many processes that lack a kernel one compiles it

typedef enum lb_lease_state {
  LB_LEASE_GRANTED,  // this store holds it, until it gives it back or ends
  LB_LEASE_BUSY,     // another does: ask again later, after another get
} lb_lease_state;

// Who is refused for `seconds` on end, asking again and again, gets it: the
// other hangs. A process that ends, however it ends, holds none. Where there is
// no folder, or no leases can be had in it, every lease is taken.
lb_lease_state lb_store_lease(lb_store *s, lb_hash128 key, double seconds);
void lb_store_release(lb_store *s, lb_hash128 key);  // after the put

// -- verdicts: what was measured, which holds for one kind of processor

typedef enum lb_trial_result {
  LB_TRIAL_RESULT_NONE,  // not measured
  LB_TRIAL_RESULT_KEPT,  // not slower than what it replaced
  LB_TRIAL_RESULT_DEMOTED,
} lb_trial_result;

lb_trial_result lb_store_trial_result(lb_store *s, lb_hash128 key,
                                      const char *processor);
lb_status lb_store_put_trial_result(lb_store *s, lb_hash128 key,
                                    const char *processor,
                                    lb_trial_result verdict);

// -- housekeeping

// Uses and totals are noted in batches: this writes those noted so far, which
// else happens with the next put, once there are many, and at the end.
lb_status lb_store_flush(lb_store *s);

typedef struct lb_store_stats {  // of this store, since it was made
  uint64_t hits, hits_readonly;  // in the folder's file; in layers below
  uint64_t misses;
  uint64_t insertions, evictions;
  uint64_t corrupt;           // entries that were found broken, and dropped
  uint64_t rebuilds;          // of the whole file
  uint64_t salvaged;          // entries that these kept
  uint64_t failures;          // calls that the disk, or a lock, let down
  uint64_t leases, refusals;  // leases taken; those that another held
  uint64_t get_ns, put_ns;    // spent in all
  uint64_t entries, bytes;    // of the folder's file, at this moment
} lb_store_stats;

void lb_store_get_stats(lb_store *s, lb_store_stats *out);
// The same of all stores that had this file, since it was made, as far as they
// have written it; entries and bytes are 0.
lb_status lb_store_totals(lb_store *s, lb_store_stats *out);

// -- for people: see tools.c
// These speak of the folder's file; where a store has no folder, of its first
// layer.

// Calls `fn` for each entry until it returns false. Its strings and spans are
// valid until then. `fn` does not use the store.
typedef bool lb_store_each_fn(void *user, const lb_store_entry *e);
lb_status lb_store_each(lb_store *s, lb_store_each_fn *fn, void *user);

typedef struct lb_store_verified {
  uint64_t entries;  // that are sound
  uint64_t corrupt;  // that are not
  char error[200];   // of SQLite about the file itself; "" if it has none
} lb_store_verified;

// Reads all of it. Changes nothing.
lb_status lb_store_verify(lb_store *s, lb_store_verified *out);
// Makes it anew from the entries that are sound.
lb_status lb_store_repair(lb_store *s);

// Drops entries that were last used before `since` (seconds since 1970), then,
// those not used for longest first, all that is over `bytes`. The file shrinks.
lb_status lb_store_prune(lb_store *s, int64_t since, uint64_t bytes,
                         uint64_t *removed);

// A file of its own with all that is sound but verdicts; one that is there is
// replaced. It serves as a read-only layer.
lb_status lb_store_export(lb_store *s, const char *path, uint64_t *written);
// Adds what is not there yet, as far as there is room. Refuses a file that is
// not of this version, or that is not to be trusted.
typedef struct lb_store_imported {
  uint64_t added, already_present, corrupt;
} lb_store_imported;
lb_status lb_store_import(lb_store *s, const char *path,
                          lb_store_imported *out);

#endif
