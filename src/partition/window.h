// partition/window.h -- what slides over an image: convolutions and pools with
// channels last. Internal to the room.
//
// At the borders of an image windows stick out, and taps that lie outside count
// for nothing. Where the same taps lie inside, positions are one *zone*: the
// middle, and what is left, right, above and below of it. A zone is a binding;
// all zones of a partition have the same spec, and the first is the largest.
#ifndef LB_PARTITION_WINDOW_H
#define LB_PARTITION_WINDOW_H

#include "partition/partition.h"

// True if the node can be an anchor, as far as attributes and constants say;
// *form is CONV or WINDOW.
bool lb_window_is(const lb_node *n, lb_form *form);
// How its elements are combined.
lb_acc lb_window_acc(const lb_node *n);

// The weights as kernels read them: of CONV a matrix [taps * in][out] in panels
// for each group, of WINDOW [taps][channels]. Bytes of it, 0 if it has none;
// false if they cannot be counted.
bool lb_window_pack_size(const lb_node *n, lb_form form, size_t *bytes);
lb_status lb_window_pack(const lb_node *n, lb_form form, void *to);

// As lb_partition_bind: the first zone.
lb_status lb_window_bind(const lb_partition *p, lb_tensor_fn *tensor,
                         void *user, lb_binding *out, bool *ok);
// As lb_partition_bind_zones.
lb_status lb_window_bind_zones(const lb_partition *p, const lb_binding *first,
                               lb_tensor_fn *tensor, lb_zone_fn *zone,
                               void *user);

#endif
