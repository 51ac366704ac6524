// store/layer.h -- a place where kernels are looked for: a file, a server.
//
// A store has layers and asks them in order. New entries, leases and trial
// results go to the first layer if that can be written. An implementation sets
// `ops` and lies behind the struct; it counts in the store's statistics and
// warns once of each kind of trouble.
//
// Calls come one at a time, with the store's lock held.
#ifndef LB_STORE_LAYER_H
#define LB_STORE_LAYER_H

#include "store/sqlite.h"
#include "store/store.h"

typedef struct lb_layer lb_layer;

typedef struct lb_layer_ops {
  // The object of `key` if its full bytes are `request`. What goes wrong is a
  // miss. *out is {0} on entry, and on a miss.
  bool (*get)(lb_layer *l, lb_hash128 key, lb_span request,
              lb_store_found *out);
  // These are NULL in a layer that is only read.
  lb_status (*put)(lb_layer *l, const lb_store_entry *e);
  lb_status (*drop)(lb_layer *l, lb_hash128 key);
  lb_lease_state (*lease)(lb_layer *l, lb_hash128 key, double seconds);
  void (*release)(lb_layer *l, lb_hash128 key);
  lb_status (*flush)(lb_layer *l);
  // Closes what must not be open across a fork; it is opened again when needed.
  void (*before_fork)(lb_layer *l);
  void (*in_child)(lb_layer *l);  // NULL: nothing is to be done there
  void (*free)(lb_layer *l);
} lb_layer_ops;

// What the layers of a store share.
typedef struct lb_store_core {
  const lb_log *log;  // borrowed; NULL: silent
  lb_sqlite sqlite;
  bool loaded;
  unsigned warned;  // a bit for each kind of trouble told
  lb_store_stats stats;
} lb_store_core;

struct lb_layer {  // first member of every layer
  const lb_layer_ops *ops;
  lb_store_core *core;  // borrowed from the store
};

lb_status lb_core_load_sqlite(lb_store_core *c);
// The level at which trouble of this kind is told: a warning, once.
lb_log_level lb_core_level(lb_store_core *c, unsigned kind);
// Consumes nothing: the caller drops or returns the status.
void lb_core_warn(lb_store_core *c, unsigned kind, lb_status st);

#endif
