// store/layer.h -- the interface of a store's layer: a source of kernels such
// as a file or a server.
//
// A store searches its layers in order. New entries, leases and trial results
// go to the first layer if it is writable. An implementation embeds lb_layer as
// its first member and sets `ops`; it counts in the store's statistics and
// warns once of each kind of failure.
//
// The store calls it with its lock held, so one call at a time.
#ifndef LB_STORE_LAYER_H
#define LB_STORE_LAYER_H

#include "store/sqlite.h"
#include "store/store.h"

typedef struct lb_layer lb_layer;

typedef struct lb_layer_ops {
  // Finds the object of `key` whose full bytes are `request`. A failure is a
  // miss. *out is {0} on entry, and stays so on a miss.
  bool (*get)(lb_layer *l, lb_hash128 key, lb_span request, lb_store_hit *out);
  // The next five are NULL in a read-only layer.
  lb_status (*put)(lb_layer *l, const lb_store_entry *e);
  lb_status (*drop)(lb_layer *l, lb_hash128 key);
  lb_lease_state (*lease)(lb_layer *l, lb_hash128 key, double seconds);
  void (*release)(lb_layer *l, lb_hash128 key);
  lb_status (*flush)(lb_layer *l);
  // Closes what must not be open across a fork; later calls reopen it.
  void (*before_fork)(lb_layer *l);
  void (*in_child)(lb_layer *l);  // may be NULL
  void (*free)(lb_layer *l);
} lb_layer_ops;

// State shared by all layers of a store.
typedef struct lb_store_core {
  const lb_log *log;  // borrowed; NULL: silent
  lb_sqlite sqlite;
  bool loaded;
  unsigned warned;  // one bit per kind of failure logged as a warning
  lb_store_stats stats;
} lb_store_core;

struct lb_layer {  // first member of every layer
  const lb_layer_ops *ops;
  lb_store_core *core;  // borrowed from the store
};

lb_status lb_core_load_sqlite(lb_store_core *c);
// The log level for a failure of this kind: LB_LOG_WARN the first time, then
// LB_LOG_DEBUG.
lb_log_level lb_core_level(lb_store_core *c, unsigned kind);
// Logs `st` at that level. Does not consume it.
void lb_core_warn(lb_store_core *c, unsigned kind, lb_status st);

#endif
