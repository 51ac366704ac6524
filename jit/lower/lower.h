// lower/lower.h -- (spec, facts, target) -> kernel IR.
//
// The kernel has one PARAM a cell of the spec's arguments (spec.h), in order:
// pointers to elements of the operands' dtypes, int64 sizes and strides,
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

typedef struct lb_lower_target {
  const char *level;              // "x86-64-v4", and a trait behind a '+'
  uint32_t lanes;                 // of a vector of float32: 4, 8 or 16
  uint32_t tile_rows, tile_cols;  // of a product, unless facts choose
  bool halves;                    // half a vector takes half the time of one
} lb_lower_target;

extern const lb_lower_target lb_lower_targets[];  // the last has no level
const lb_lower_target *lb_lower_target_find(const char *level);  // or NULL

// Any bytes may be given as spec and facts: LB_INVALID if they are not sound,
// LB_UNSUPPORTED if the tile chosen is none. *out is simplified; {0} on
// failure.
lb_status lb_lower(const lb_spec *spec, const lb_facts *facts,
                   const lb_lower_target *target, lb_kernel *out);

#endif
