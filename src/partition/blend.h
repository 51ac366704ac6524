// partition/blend.h -- a Resize that makes elements of their neighbours.
// Internal to the room.
#ifndef LB_PARTITION_BLEND_H
#define LB_PARTITION_BLEND_H

#include "partition/emit.h"
#include "partition/partition.h"

// Whether the node is one, as far as attributes and constants say; a map, too.
bool lb_blend_is(const lb_node *n);
int lb_blend_taps(const lb_node *n);       // along an axis
int lb_blend_most_axes(const lb_node *n);  // that a spec has room for

// Which axes it changes: none, if it does nothing. False if y is not made so
// from x, or not by a kernel.
bool lb_blend_find(const lb_node *n, const lb_tensor *x, const lb_tensor *y,
                   lb_blend *out);

// Tables are operands behind x: for each axis one of places, in elements of x,
// for each tap, and then one of weights for each.
int lb_blend_tables(const lb_blend *b);  // how many
bool lb_blend_is_place(const lb_blend *b, int table);
int lb_blend_axis(const lb_blend *b, int table);
int64_t lb_blend_offset(const lb_blend *b, int table);  // in its elements
size_t lb_blend_bytes(const lb_blend *b);               // of all
void lb_blend_fill(const lb_blend *b, void *to);

uint8_t lb_blend_emit(lb_emitter *e, const lb_node *n, uint8_t x);

#endif
