// compile/kernel_store.h -- kernels in the store: from a request to an entry
// and back.
//
// How the thread that makes kernels uses it, for a request that lacks one:
//
//   if (lb_kernel_store_get(store, r, generator, &kept)) ... load kept.object
//   else if (lb_store_lease(store, lb_kernel_store_key(r, generator), seconds)
//   ==
//            LB_LEASE_BUSY) ... another process makes it: come back later
//   else { lb_kernel_store_get once more, compile, lb_kernel_store_put,
//          lb_store_release(store, lb_kernel_store_key(r, generator)) }
//
// An object that cannot be loaded is dropped with lb_store_drop. `store` may be
// NULL in all of them: then nothing is found or kept.
#ifndef LB_COMPILE_KERNEL_STORE_H
#define LB_COMPILE_KERNEL_STORE_H

#include "spec/message.h"
#include "store/store.h"

typedef struct lb_stored_kernel {  // {0}: nothing
  lb_blob object;
  lb_object_info info;
} lb_stored_kernel;

static inline void lb_stored_kernel_fini(lb_stored_kernel *k) {
  lb_blob_fini(&k->object);
}

lb_hash128 lb_kernel_store_key(const lb_request *r, uint64_t generator);

// False, and *out is {0}, unless an object of that very request and generator,
// with this ABI, is there.
bool lb_kernel_store_get(lb_store *s, const lb_request *r, uint64_t generator,
                         lb_stored_kernel *out);
lb_status lb_kernel_store_put(lb_store *s, const lb_request *r,
                              const lb_object_info *info, lb_span object);

// What an entry was made for. False unless that is of this generator and
// target, and sound: bytes on disk are no more trusted than a worker's.
bool lb_kernel_store_request(const lb_store_entry *e, uint64_t generator,
                             const char *target, lb_request *out);

#endif
