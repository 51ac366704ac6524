// store/lease.h -- locks by key that end with the process that holds them.
//
// A lease is a lock on one byte of the file `leases`, which has no contents:
// the kernel gives it back however its process ends, and no clock is needed.
// The length of that file counts how often the store beside it was rebuilt.
#ifndef LB_STORE_LEASE_H
#define LB_STORE_LEASE_H

#include "store/store.h"

#define LB_LEASE_REFUSED 64

typedef struct lb_leases {  // begin with lb_leases_init
  int fd;                   // -1: none
  struct lb_refused {
    lb_hash128 key;
    double since;  // of the monotonic clock; 0: unused
  } refused[LB_LEASE_REFUSED];
} lb_leases;

void lb_leases_init(lb_leases *l);
lb_status lb_leases_open(lb_leases *l, const char *path);
void lb_leases_close(lb_leases *l);  // gives all of them back

lb_lease_state lb_leases_take(lb_leases *l, lb_hash128 key, double seconds);
void lb_leases_give(lb_leases *l, lb_hash128 key);

// The one lock that is no key's: for who makes or rebuilds the store. False: it
// was not to be had within `seconds`.
bool lb_leases_alone(lb_leases *l, double seconds);
void lb_leases_together(lb_leases *l);
uint64_t lb_leases_rebuilds(const lb_leases *l);
void lb_leases_count_rebuild(lb_leases *l);

#endif
