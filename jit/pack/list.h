// pack/list.h -- The list of kernels in a pack.
//
// Specs are not listed here: small graphs (samples.c) pass through the
// library's own partitioner, so a pack has exactly the specs that plans
// request, and new capabilities of the partitioner are in the pack, too.
#ifndef LB_PACK_LIST_H
#define LB_PACK_LIST_H

#include "base/map.h"
#include "spec/spec.h"

typedef struct lb_pack_item {
  lb_spec spec;
  lb_facts facts;
} lb_pack_item;

typedef struct lb_pack_list {  // {0} is empty
  lb_map map;  // lb_pack_item -> itself, owned; in order of insertion
} lb_pack_list;

// Adds the spec with all facts that sizes can lead to on a machine with vectors
// of `lanes` float32, without divisibility, and without kernels that the tiles
// of another one make redundant. Duplicates are not added.
lb_status lb_pack_list_add(lb_pack_list *l, const lb_spec *spec,
                           uint32_t lanes);
size_t lb_pack_list_count(const lb_pack_list *l);
const lb_pack_item *lb_pack_list_at(const lb_pack_list *l, size_t i);
void lb_pack_list_fini(lb_pack_list *l);

// -- samples.c

// Adds the specs of all samples.
lb_status lb_pack_samples(lb_pack_list *l, uint32_t lanes);

// Adds the specs of one sample: a chain of operators over rows x cols, such as
// "MatMul x w; Add . c; Gelu[approximate=tanh] .". Adds nothing if it is not a
// valid graph or has no spec. Operands:
//   x f   a matrix, rows x cols: x is the same one each time, f a new one
//   t     a matrix whose columns are not contiguous
//   c r   one row; one column
//   o     one element; a number: one that is a constant
//   w v   a matrix, cols x cols, constant or not; u one like t
//   p     a feature map of one row, channels last; k d weights of a convolution
//         and of a depthwise one, with one tap, as specs have no sizes
//   h     heads of attention; m n their mask, over queries and keys, or keys
//   s e l inputs of LSTM, GRU and RNN; q g j their weights
//   a-1   axes, a constant; _ none
//   . $1  the result of the previous operator, or of the first, ...
// A letter with a digit, as c1, is the same value each time. A prefix `b` makes
// it bool, `i` int64, `I` int32, `B` int8, `U` uint8; otherwise it has dtype
// `t`.
lb_status lb_pack_sample(lb_pack_list *l, const char *text, lb_dtype t,
                         uint32_t lanes);

#endif
