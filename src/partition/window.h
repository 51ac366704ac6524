// partition/window.h -- convolutions and pools with channels last. Internal to
// this module.
//
// A zone of each axis (partition/zones.h) gives a binding; all zones of a
// partition have the same spec, and the first is the largest.
#ifndef LB_PARTITION_WINDOW_H
#define LB_PARTITION_WINDOW_H

#include "partition/partition.h"

// Whether the node can be an anchor, according to attributes and constants;
// *form is CONV or WINDOW.
bool lb_window_is(const lb_node *n, lb_form *form);
// How its elements are accumulated.
lb_acc lb_window_acc(const lb_node *n);

typedef enum lb_pads {
  LB_PADS_EXPLICIT,
  LB_PADS_NONE,
  LB_PADS_UPPER,  // auto_pad SAME_UPPER: an odd pad goes after
  LB_PADS_LOWER,  // auto_pad SAME_LOWER: an odd pad goes before
} lb_pads;

// What attributes and constants say about the node.
typedef struct lb_window_desc {
  int spatial;  // number of spatial axes
  struct {
    int64_t kernel, stride, dilation, before, after;
  } axes[LB_MAX_SPATIAL];
  lb_pads pads;
  bool count_pads;   // an average includes padding
  bool transposed;   // a transposed convolution
  bool planar;       // channels first in memory: a piece is along the last
                     // spatial axis, taps_x are the channels
  bool weighted;     // it has weights
  int64_t groups;    // groups that are a loop; depthwise: 1
  int64_t channels;  // of the input; 0: as many as the output
} lb_window_desc;
void lb_window_describe(const lb_node *n, lb_window_desc *out);

// The weights as kernels read them: for CONV a matrix [taps * in][out] in
// panels for each group, for WINDOW [taps][channels]. *bytes is their size, 0
// if there are none; false if it overflows.
lb_layout lb_window_panels(const lb_node *n);  // for CONV
bool lb_window_pack_size(const lb_node *n, lb_form form, size_t *bytes);
// Nodes of one form that read the same constant are packed identically if this
// value and the layout are equal.
int64_t lb_window_pack_order(const lb_node *n);
lb_status lb_window_pack(const lb_node *n, lb_form form, void *to);

// Like lb_partition_bind: the first zone.
lb_status lb_window_bind(const lb_partition *p, lb_tensor_fn *tensor,
                         void *user, lb_binding *out, bool *ok);
// Like lb_partition_bind_zones.
lb_status lb_window_bind_zones(const lb_partition *p, lb_binding *b,
                               lb_zone_fn *zone, void *user);

#endif
