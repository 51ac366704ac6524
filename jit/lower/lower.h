// lower/lower.h -- Lowers (spec, facts, target) to kernel IR.
//
// The kernel has one PARAM per cell of the spec's arguments (spec/abi.h), in
// that order: pointers to elements of the operands' dtypes, int64 sizes and
// strides, scalars. It runs as one group of one work item over all rows and
// columns that it is given; a caller that splits the work passes it a part of
// them. The functions are pure: any thread may call them.
//
// (1) Results are the bits that spec.h states, for any number of lanes, tile
//     and facts.
// (2) The kernel touches no memory outside the operands, whatever the sizes
//     (including 0), provided that the assumed facts hold.
#ifndef LB_LOWER_LOWER_H
#define LB_LOWER_LOWER_H

#include "kir/kir.h"
#include "spec/spec.h"
#include "spec/target.h"

// The default rows and columns of a matmul's register tile; facts may choose
// others.
typedef struct lb_lower_tile {
  uint32_t rows, cols;
} lb_lower_tile;
lb_lower_tile lb_lower_tile_of(const lb_target *t);

// Spec and facts may be arbitrary bytes: LB_INVALID if they fail verification,
// LB_UNSUPPORTED if the chosen tile is not supported. *out is simplified; it is
// {0} on failure.
lb_status lb_lower(const lb_spec *spec, const lb_facts *facts,
                   const lb_target *target, lb_kernel *out);

#endif
