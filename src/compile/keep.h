// compile/keep.h -- kernels in the store: from a request to an entry and back.
//
// How the thread that makes kernels uses it, for a request that lacks one:
//
//   if (lb_keep_get(store, r, generator, &kept)) ... load kept.object
//   else if (lb_store_lease(store, lb_keep_key(r, generator), seconds) ==
//            LB_LEASE_HELD) ... another process makes it: come back later
//   else { lb_keep_get once more, compile, lb_keep_put,
//          lb_store_release(store, lb_keep_key(r, generator)) }
//
// An object that cannot be loaded is dropped with lb_store_drop. `store` may be
// NULL in all of them: then nothing is found or kept.
#ifndef LB_COMPILE_KEEP_H
#define LB_COMPILE_KEEP_H

#include "spec/message.h"
#include "store/store.h"

typedef struct lb_kept {  // {0}: nothing
  lb_blob object;
  lb_object_info info;
} lb_kept;

static inline void lb_kept_fini(lb_kept *k) { lb_blob_fini(&k->object); }

lb_hash128 lb_keep_key(const lb_request *r, uint64_t generator);

// False, and *out is {0}, unless an object of that very request and generator,
// with this ABI, is there.
bool lb_keep_get(lb_store *s, const lb_request *r, uint64_t generator,
                 lb_kept *out);
lb_status lb_keep_put(lb_store *s, const lb_request *r,
                      const lb_object_info *info, lb_span object);

// What an entry was made for. False unless that is of this generator and
// target, and sound: bytes on disk are no more trusted than a worker's.
bool lb_keep_request(const lb_store_entry *e, uint64_t generator,
                     const char *target, lb_request *out);

#endif
