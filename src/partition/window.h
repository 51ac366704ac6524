// partition/window.h -- what slides over an image: convolutions and pools with
// channels last. Internal to the room.
//
// A zone of each axis (partition/zones.h) is a binding; all zones of a
// partition have the same spec, and the first is the largest.
#ifndef LB_PARTITION_WINDOW_H
#define LB_PARTITION_WINDOW_H

#include "partition/partition.h"

// True if the node can be an anchor, as far as attributes and constants say;
// *form is CONV or WINDOW.
bool lb_window_is(const lb_node *n, lb_form *form);
// How its elements are combined.
lb_acc lb_window_acc(const lb_node *n);

typedef enum lb_pads {
  LB_PADS_SAID,
  LB_PADS_NONE,
  LB_PADS_UPPER,  // as many as it takes; one that is left over comes after
  LB_PADS_LOWER,  // ... comes before
} lb_pads;

// What attributes and constants say of such a node.
typedef struct lb_window_desc {
  int space;  // axes
  struct {
    int64_t kernel, stride, dilation, before, after;
  } axes[LB_MAX_SPATIAL];
  lb_pads pads;
  bool with_pads;    // an average counts them
  bool turned;       // a transposed convolution
  bool planar;       // the last axis is the piece, channels are steps
  bool weighted;     // it multiplies
  int64_t groups;    // that are loops; of one output a channel: 1
  int64_t channels;  // of the image; 0: as many as the result has
} lb_window_desc;
void lb_window_describe(const lb_node *n, lb_window_desc *out);

// The weights as kernels read them: of CONV a matrix [taps * in][out] in panels
// for each group, of WINDOW [taps][channels]. Bytes of it, 0 if it has none;
// false if they cannot be counted.
lb_layout lb_window_panels(const lb_node *n);  // of CONV
bool lb_window_pack_size(const lb_node *n, lb_form form, size_t *bytes);
// Nodes of one form that read one constant are packed alike where these and the
// layout are equal.
int64_t lb_window_pack_order(const lb_node *n);
lb_status lb_window_pack(const lb_node *n, lb_form form, void *to);

// As lb_partition_bind: the first zone.
lb_status lb_window_bind(const lb_partition *p, lb_tensor_fn *tensor,
                         void *user, lb_binding *out, bool *ok);
// As lb_partition_bind_zones.
lb_status lb_window_bind_zones(const lb_partition *p, lb_binding *b,
                               lb_zone_fn *zone, void *user);

#endif
