// partition/interpolate.h -- interpolating Resize (linear, cubic). Internal to
// this module.
#ifndef LB_PARTITION_INTERPOLATE_H
#define LB_PARTITION_INTERPOLATE_H

#include "partition/specgen.h"
#include "partition/partition.h"

// Whether the node is an interpolating Resize, according to attributes and
// constants. It also counts as elementwise.
bool lb_interp_is(const lb_node *n);
int lb_interp_taps(const lb_node *n);      // per axis
int lb_interp_max_axes(const lb_node *n);  // that fit in a spec

// Finds the axes that it resizes: none, if it does nothing. False if y is not a
// resized x, or if no kernel supports it.
bool lb_interp_find(const lb_node *n, const lb_tensor *x, const lb_tensor *y,
                    lb_interp *out);

// Tables are operands that follow x: for each axis one table of row offsets (in
// elements of x) for each tap, then one table of weights for each tap.
int lb_interp_tables(const lb_interp *b);  // number of tables
bool lb_interp_is_row_offset(const lb_interp *b, int table);
int lb_interp_axis(const lb_interp *b, int table);
int64_t lb_interp_offset(const lb_interp *b, int table);  // in elements of the
                                                          // table's dtype
size_t lb_interp_bytes(const lb_interp *b);               // of all tables
void lb_interp_fill(const lb_interp *b, void *to);

uint8_t lb_interp_emit(lb_specgen *e, const lb_node *n, uint8_t x);

#endif
