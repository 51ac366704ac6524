// lower/lower.h -- (spec, facts, target) -> kernel IR.
//
// The kernel has one PARAM a cell of the spec's arguments (spec/abi.h), in
// order: pointers to elements of the operands' dtypes, int64 sizes and strides,
// scalars. It runs as one group of one work item over all rows and columns it
// is given; who splits the work gives it parts. Pure functions: any thread.
//
// (1) Results are the bits that spec.h states, for any lanes, tile and facts.
// (2) No memory is touched outside of the operands, whatever the sizes, 0 among
//     them; what the facts assume must hold.
#ifndef LB_LOWER_LOWER_H
#define LB_LOWER_LOWER_H

#include "kir/kir.h"
#include "spec/spec.h"
#include "spec/target.h"

// The rows and columns of a matmul's register tile, unless facts choose them.
typedef struct lb_lower_tile {
  uint32_t rows, cols;
} lb_lower_tile;
lb_lower_tile lb_lower_tile_of(const lb_target *t);

// Any bytes may be given as spec and facts: LB_INVALID if they are not sound,
// LB_UNSUPPORTED if the tile chosen is none. *out is simplified; {0} on
// failure.
lb_status lb_lower(const lb_spec *spec, const lb_facts *facts,
                   const lb_target *target, lb_kernel *out);

#endif
