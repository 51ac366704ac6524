// compile/kernel_store.h -- kernels in the disk store: converts between
// requests and store entries.
//
// How the compile thread uses it for a request without a kernel:
//
//   key = lb_kernel_store_key(r, generator)
//   if (lb_kernel_store_get(store, r, generator, &stored))
//     ... load stored.object
//   else if (lb_store_lease(store, key, seconds) == LB_LEASE_BUSY)
//     ... another process compiles it: come back later
//   else
//     lb_kernel_store_get once more, compile, lb_kernel_store_put,
//     lb_store_release(store, key)
//
// An object that cannot be loaded is dropped with lb_store_drop. `store` may be
// NULL in all functions: then nothing is found or stored.
#ifndef LB_COMPILE_KERNEL_STORE_H
#define LB_COMPILE_KERNEL_STORE_H

#include "spec/message.h"
#include "store/store.h"

typedef struct lb_stored_kernel {  // {0}: none
  lb_blob object;
  lb_object_info info;
} lb_stored_kernel;

static inline void lb_stored_kernel_fini(lb_stored_kernel *k) {
  lb_blob_fini(&k->object);
}

lb_hash128 lb_kernel_store_key(const lb_request *r, uint64_t generator);

// False, and *out is {0}, unless the store has an object for exactly this
// request and generator, with this build's kernel ABI.
bool lb_kernel_store_get(lb_store *s, const lb_request *r, uint64_t generator,
                         lb_stored_kernel *out);
lb_status lb_kernel_store_put(lb_store *s, const lb_request *r,
                              const lb_object_info *info, lb_span object);

// Reads the request that an entry was compiled for. False unless it is for this
// generator and target, and valid: bytes on disk are trusted no more than a
// worker's response.
bool lb_kernel_store_request(const lb_store_entry *e, uint64_t generator,
                             const char *target, lb_request *out);

#endif
