// store/lease.h -- per-key locks that end with the process that holds them.
//
// A lease is a file lock on one byte of the sparse file `leases`. The operating
// system releases it however the process ends, so no expiry time is needed. The
// length of that file counts how often the store next to it was rebuilt.
#ifndef LB_STORE_LEASE_H
#define LB_STORE_LEASE_H

#include "store/store.h"

#define LB_LEASE_REFUSED 64

typedef struct lb_leases {  // initialise with lb_leases_init
  int fd;                   // -1: not open
  struct lb_refused {       // keys that another process holds
    lb_hash128 key;
    double since;  // first refusal, monotonic clock, seconds; 0: unused
  } refused[LB_LEASE_REFUSED];
} lb_leases;

void lb_leases_init(lb_leases *l);
lb_status lb_leases_open(lb_leases *l, const char *path);
void lb_leases_close(lb_leases *l);  // releases all leases

lb_lease_state lb_leases_take(lb_leases *l, lb_hash128 key, double seconds);
void lb_leases_give(lb_leases *l, lb_hash128 key);

// The lock for creating or rebuilding the store; it belongs to no key. False:
// not acquired within `seconds`.
bool lb_leases_lock_exclusive(lb_leases *l, double seconds);
void lb_leases_unlock_exclusive(lb_leases *l);
uint64_t lb_leases_rebuilds(const lb_leases *l);
void lb_leases_count_rebuild(lb_leases *l);

#endif
