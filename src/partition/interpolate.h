// partition/interpolate.h -- a Resize that makes elements of their neighbours.
// Internal to the room.
#ifndef LB_PARTITION_INTERPOLATE_H
#define LB_PARTITION_INTERPOLATE_H

#include "partition/specgen.h"
#include "partition/partition.h"

// Whether the node is one, as far as attributes and constants say; a map, too.
bool lb_interp_is(const lb_node *n);
int lb_interp_taps(const lb_node *n);       // along an axis
int lb_interp_most_axes(const lb_node *n);  // that a spec has room for

// Which axes it changes: none, if it does nothing. False if y is not made so
// from x, or not by a kernel.
bool lb_interp_find(const lb_node *n, const lb_tensor *x, const lb_tensor *y,
                    lb_interp *out);

// Tables are operands behind x: for each axis one of places, in elements of x,
// for each tap, and then one of weights for each.
int lb_interp_tables(const lb_interp *b);  // how many
bool lb_interp_is_place(const lb_interp *b, int table);
int lb_interp_axis(const lb_interp *b, int table);
int64_t lb_interp_offset(const lb_interp *b, int table);  // in its elements
size_t lb_interp_bytes(const lb_interp *b);               // of all
void lb_interp_fill(const lb_interp *b, void *to);

uint8_t lb_interp_emit(lb_specgen *e, const lb_node *n, uint8_t x);

#endif
