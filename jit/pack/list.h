// pack/list.h -- which kernels a pack holds.
//
// Specs are not written down here: small graphs (samples.c) go through the
// library's own partitioner, so a pack has the bytes that plans will ask for,
// and what the partitioner learns the pack has too.
#ifndef LB_PACK_LIST_H
#define LB_PACK_LIST_H

#include "base/map.h"
#include "spec/spec.h"

typedef struct lb_pack_item {
  lb_spec spec;
  lb_facts facts;
} lb_pack_item;

typedef struct lb_pack_list {  // {0} is empty
  lb_map map;                  // lb_pack_item -> itself, owned; in order
} lb_pack_list;

// Adds the spec with all facts that sizes can lead to on a machine with vectors
// of `lanes` float32, divisibility left out, and kernels that another's tiles
// make needless. One that is there already is not added.
lb_status lb_pack_list_add(lb_pack_list *l, const lb_spec *spec,
                           uint32_t lanes);
size_t lb_pack_list_count(const lb_pack_list *l);
const lb_pack_item *lb_pack_list_at(const lb_pack_list *l, size_t i);
void lb_pack_list_fini(lb_pack_list *l);

// -- samples.c

// Adds what all samples become.
lb_status lb_pack_samples(lb_pack_list *l, uint32_t lanes);

// Adds what one sample becomes: a chain of operators over rows x cols, such as
// "MatMul x w; Add . c; Gelu[approximate=tanh] .". Nothing if it is no sound
// graph or has no spec. Operands:
//   x f   a matrix, rows x cols: x is the same one each time, f another
//   t     a matrix whose columns do not lie beside each other
//   c r   one row; one column
//   o     one element; a number: one that is a constant
//   w v   a matrix, cols x cols, constant or not; u one like t
//   p     an image of one row, channels last; k d weights of a convolution and
//         of a depthwise one, of one tap: specs have no sizes
//   h     heads of attention; m n their mask, over queries and keys, or keys
//   s e l what LSTM, GRU and RNN get; q g j their weights
//   a-1   axes, a constant; _ none
//   . $1  what the operator before has made, or the first, ...
// A letter with a digit, as c1, is the same value each time. A `b` before it
// makes it bool, `i` int64, `I` int32, `B` int8, `U` uint8; else it is of dtype
// `t`.
lb_status lb_pack_sample(lb_pack_list *l, const char *text, lb_dtype t,
                         uint32_t lanes);

#endif
