// store/store_internal.h -- struct lb_store; private to this module.
#ifndef LB_STORE_STORE_INTERNAL_H
#define LB_STORE_STORE_INTERNAL_H

#include "base/lock.h"
#include "store/directory.h"
#include "store/image.h"

struct lb_store {
  lb_lock lock;  // first member: fork hooks cast it. Guards all fields below
  lb_store_core core;
  lb_store_dir *directory;                    // layer 0; NULL: none
  lb_image *first;                            // first read-only layer or NULL
  lb_layer *layers[1 + LB_STORE_MAX_LAYERS];  // owned
  size_t n_layers;
};

// The error of calls that need a directory, if the store has none.
lb_status lb_store_no_directory(void);

#endif
