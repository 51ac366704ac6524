// partition/weights.h -- constant weights as kernels read them, each packed
// once for all partitionings of a graph.
//
// Packed weights belong to a session, not to a partitioning: what a constant
// becomes depends on the operator that reads it and on the layout, never on
// what is fused around it. They stay until the session ends, because plans
// contain their addresses.
//
// Any thread may call. The lock is held while weights are packed, so that two
// threads that build partitionings at the same time pack nothing twice; runs
// never take it.
#ifndef LB_PARTITION_WEIGHTS_H
#define LB_PARTITION_WEIGHTS_H

#include "base/arena.h"
#include "base/lock.h"
#include "base/map.h"
#include "device/device.h"
#include "partition/partition.h"

typedef struct lb_weights {
  lb_device *device;  // in whose memory they are; borrowed
  lb_lock lock;       // of all that follows
  lb_map map;         // struct key -> bytes in one of the blocks
  lb_arena keys;
  struct lb_weights_block *blocks;  // owned
  size_t bytes;                     // of all packed weights
  size_t packings;                  // constants that were packed so far
} lb_weights;

lb_status lb_weights_init(lb_weights *w, lb_device *device);
void lb_weights_fini(lb_weights *w);

// Sets `packed` of each of these partitions that has constant weights, and
// packs what no earlier call has packed.
lb_status lb_weights_pack(lb_weights *w, lb_partition *const *parts,
                          uint32_t n);

// Where the device has `bytes` bytes at `host`, which are of a constant of the
// graph: the same place for a device that shares memory, else a copy that is
// made once.
lb_status lb_weights_place(lb_weights *w, const void *host, size_t bytes,
                           const void **out);

// How weights of this partition are laid out.
lb_layout lb_weights_layout(const lb_partition *part);

#endif
