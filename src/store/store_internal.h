// store/store_internal.h -- a store from inside: for the files of this module
// alone.
#ifndef LB_STORE_STORE_INTERNAL_H
#define LB_STORE_STORE_INTERNAL_H

#include "base/lock.h"
#include "store/directory.h"
#include "store/image.h"

struct lb_store {
  lb_lock lock;  // first: hooks are given it. Guards all below
  lb_store_core core;
  lb_store_dir *folder;  // layer 0; NULL: there is none
  lb_image *first;       // the first read-only layer; NULL: there is none
  lb_layer *layers[1 + LB_STORE_MAX_LAYERS];  // owned
  size_t n_layers;
};

// The error of calls that need a folder, where a store has none.
lb_status lb_store_no_directory(void);

#endif
