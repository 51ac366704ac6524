// store/lease.h -- per-key locks that end with the process that holds them.
//
// A lease is a file lock on one byte of the file `leases`, which has no
// contents. The operating system releases it however the process ends, so no
// expiry time is needed. The length of that file counts how often the store
// next to it was rebuilt. Not thread-safe: the lock of the store protects it.
#ifndef LB_STORE_LEASE_H
#define LB_STORE_LEASE_H

#include "store/store.h"

#define LB_LEASE_REFUSED 64  // remembered keys

typedef struct lb_leases {  // initialise with lb_leases_init
  int fd;                   // -1: not open
  struct lb_refused {       // keys that another store holds
    lb_hash128 key;
    double since;  // first refusal, monotonic clock, seconds; 0: unused
  } refused[LB_LEASE_REFUSED];
} lb_leases;

void lb_leases_init(lb_leases *l);
lb_status lb_leases_open(lb_leases *l, const char *path);
void lb_leases_close(lb_leases *l);  // releases all leases

// The contract is that of lb_store_lease.
lb_lease_state lb_leases_take(lb_leases *l, lb_hash128 key, double seconds);
void lb_leases_give(lb_leases *l, lb_hash128 key);

// The lock for creating or rebuilding the store; it belongs to no key. Returns
// false if it was not acquired within `seconds`, or if the file is not open,
// and true if the file system has no locks.
bool lb_leases_lock_exclusive(lb_leases *l, double seconds);
void lb_leases_unlock_exclusive(lb_leases *l);

// How often the store was rebuilt.
uint64_t lb_leases_rebuilds(const lb_leases *l);
void lb_leases_count_rebuild(lb_leases *l);

#endif
