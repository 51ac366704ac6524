// partition/weights.h -- constant weights in the layout that kernels read, each
// packed once for all partitionings of a graph.
//
// Packed weights belong to a session, not to a partitioning: how a constant is
// packed depends on the operator that reads it and on the layout, never on what
// is fused with it. They live until the session ends, because plans contain
// their addresses.
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
  lb_device *device;  // whose memory holds them; borrowed
  lb_lock lock;       // protects everything below
  lb_map map;         // struct key -> address in one of the blocks
  lb_arena keys;
  struct lb_weights_block *blocks;  // owned
  size_t bytes;                     // of all packed weights
  size_t packings;                  // number of constants packed so far
} lb_weights;

lb_status lb_weights_init(lb_weights *w, lb_device *device);
void lb_weights_fini(lb_weights *w);

// Sets `packed` of each of these partitions that has constant weights, and
// packs those that no earlier call has packed.
lb_status lb_weights_pack(lb_weights *w, lb_partition *const *parts,
                          uint32_t n);

// Returns the device address of `bytes` bytes at `host`, which belong to a
// constant of the graph: the same address if the device shares memory, else
// that of a copy, which is made once.
lb_status lb_weights_device_address(lb_weights *w, const void *host,
                                    size_t bytes, const void **out);

// The layout of the weights of this partition.
lb_layout lb_weights_layout(const lb_partition *part);

#endif
