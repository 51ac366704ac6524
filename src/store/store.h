// store/store.h -- disk cache of compiled kernels, shared by all processes.
//
// A store is one SQLite file, `kernels.db`, in a directory of the user, plus
// any number of read-only layers below it (files shipped in a container image).
// It knows nothing about specs: an entry consists of a key, the full request
// bytes that were hashed into the key, an object file and its metadata.
//
// (1) The store never fails a request. Each kind of failure is logged once as a
//     warning and counted; a get then is a miss, and the other calls return a
//     status that the caller may drop.
// (2) A get returns only an entry that was put with the same key and the same
//     request bytes and whose checksum matches. A row with a wrong checksum is
//     dropped and counted; a corrupt file is rebuilt from its valid rows.
// (3) Many processes may use one directory, and may be killed at any moment.
// (4) A store written by a later version of Limber is neither used nor changed.
//     The same holds for directories and files that another user owns or may
//     write. A store of an earlier version is replaced by an empty one.
// (5) A forked child opens the file again: see base/lock.h. Each call therefore
//     holds an lb_lock, so its caller must hold none.
//
// Files are opened and SQLite is loaded by the first call that needs them.
// Calls do file I/O, so request threads must not make them. Any thread may
// call; calls are serialised.
#ifndef LB_STORE_STORE_H
#define LB_STORE_STORE_H

#include "base/blob.h"
#include "base/hash.h"
#include "base/log.h"

#define LB_STORE_VERSION 3  // of the file format
#define LB_STORE_FILE "kernels.db"
#define LB_STORE_CAPACITY (UINT64_C(256) << 20)  // bytes, by default
#define LB_STORE_MAX_LAYERS 8

typedef struct lb_store lb_store;

typedef struct lb_store_options {  // everything is copied except the log
  const char *directory;      // created if missing; NULL: nothing is stored
  const char *const *layers;  // files, or directories with an LB_STORE_FILE
  size_t n_layers;            // searched in this order, after the directory
  uint64_t capacity;          // max. bytes of the file; 0: LB_STORE_CAPACITY
  const lb_log *log;          // borrowed; NULL: silent
} lb_store_options;

// Fails only if memory runs out or if there are too many layers.
lb_status lb_store_new(const lb_store_options *o, lb_store **out);
void lb_store_free(lb_store *s);  // flushes first; NULL is fine

// Opens the directory if it is not open yet. An error says why the directory
// cannot be used.
lb_status lb_store_check(lb_store *s);

typedef struct lb_store_entry {
  lb_hash128 key;
  lb_span request;  // full bytes that were hashed; all spans are borrowed
  lb_span meta;     // metadata of the object
  lb_span object;
  // Human-readable: kernel form, spec, assumed facts, instruction-set target.
  const char *form, *spec, *assume, *target;
  bool reusable;
  int64_t created, used;  // seconds since 1970; set by the store
} lb_store_entry;

typedef struct lb_store_hit {  // {0}: a miss
  lb_blob object, meta;        // owned
} lb_store_hit;
void lb_store_hit_fini(lb_store_hit *f);

// Finds the object of `key` whose full bytes are `request`. Returns false, with
// *out = {0}, if no layer has it or if it cannot be read.
bool lb_store_get(lb_store *s, lb_hash128 key, lb_span request,
                  lb_store_hit *out);

// Stores a copy and replaces an entry with the same key. Evicts the least
// recently used entries once the capacity is exceeded.
lb_status lb_store_put(lb_store *s, const lb_store_entry *e);

// Removes the entry of `key` because its object proved unusable.
lb_status lb_store_drop(lb_store *s, lb_hash128 key);

// -- leases: of all processes that need a kernel, only one compiles it

typedef enum lb_lease_state {
  LB_LEASE_GRANTED,  // this store holds it until it releases it or exits
  LB_LEASE_BUSY,     // another store holds it: retry later, after a get
} lb_lease_state;

// A caller that has been refused for `seconds`, over repeated calls, is granted
// the lease, because the holder is taken to hang. The leases of a process end
// with it, however it ends. If there is no directory, or if its file system has
// no locks, every lease is granted.
lb_lease_state lb_store_lease(lb_store *s, lb_hash128 key, double seconds);
void lb_store_release(lb_store *s, lb_hash128 key);  // call after the put

// -- trial results: measured speed, valid for one kind of processor

typedef enum lb_trial_result {
  LB_TRIAL_RESULT_NONE,     // not measured
  LB_TRIAL_RESULT_KEPT,     // not slower than the baseline it replaced
  LB_TRIAL_RESULT_DEMOTED,  // slower
} lb_trial_result;

lb_trial_result lb_store_trial_result(lb_store *s, lb_hash128 key,
                                      const char *processor);
lb_status lb_store_put_trial_result(lb_store *s, lb_hash128 key,
                                    const char *processor,
                                    lb_trial_result result);

// -- housekeeping

// Writes pending last-use times and totals. They are batched; otherwise they
// are written with the next put, when the batch is full, and by lb_store_free.
lb_status lb_store_flush(lb_store *s);

typedef struct lb_store_stats {  // of this lb_store since it was created
  uint64_t hits, hits_readonly;  // in the directory's file; in read-only layers
  uint64_t misses;
  uint64_t insertions, evictions;
  uint64_t corrupt;           // entries found corrupt, and dropped
  uint64_t rebuilds;          // of the whole file
  uint64_t salvaged;          // entries recovered by rebuilds
  uint64_t failures;          // calls that failed because of disk or locks
  uint64_t leases, refusals;  // leases granted; leases that were busy
  uint64_t get_ns, put_ns;    // total time
  uint64_t entries, bytes;    // current contents of the directory's file
} lb_store_stats;

void lb_store_get_stats(lb_store *s, lb_store_stats *out);
// The sum over all processes that have used this file since it was created, as
// far as they have flushed; `entries` and `bytes` are 0.
lb_status lb_store_totals(lb_store *s, lb_store_stats *out);

// -- maintenance, see tools.c
// These functions work on the directory's file or, for a store without a
// directory, on its first layer.

// Calls `fn` for each entry until it returns false. Strings and spans are valid
// during the call only. `fn` must not use the store.
typedef bool lb_store_each_fn(void *user, const lb_store_entry *e);
lb_status lb_store_each(lb_store *s, lb_store_each_fn *fn, void *user);

typedef struct lb_store_verified {
  uint64_t entries;  // valid entries
  uint64_t corrupt;  // corrupt entries
  char error[200];   // SQLite's integrity error for the file; "": none
} lb_store_verified;

// Checks every entry. Changes nothing.
lb_status lb_store_verify(lb_store *s, lb_store_verified *out);
// Rebuilds the file from its valid entries.
lb_status lb_store_repair(lb_store *s);

// Drops entries last used before `since` (seconds since 1970), then the least
// recently used ones until the file has at most `bytes`. Shrinks the file.
lb_status lb_store_prune(lb_store *s, int64_t since, uint64_t bytes,
                         uint64_t *removed);

// Writes all valid entries, without trial results, to a new file that can be
// used as a read-only layer. Replaces an existing file.
lb_status lb_store_export(lb_store *s, const char *path, uint64_t *written);
// Adds the entries that are not present yet, within the capacity. Refuses a
// file of another version and one that is not to be trusted (trust.h).
typedef struct lb_store_imported {
  uint64_t added, already_present, corrupt;
} lb_store_imported;
lb_status lb_store_import(lb_store *s, const char *path,
                          lb_store_imported *out);

#endif
