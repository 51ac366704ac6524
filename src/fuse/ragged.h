// fuse/ragged.h -- rewrites the graph of an encoder so that padding is left
// out: ragged batches.
//
// In the new graph the rows of all tokens of a batch are one sequence, [1,
// tokens, ...], where the original has [batch, sequence, ...]. Attention runs
// for each sequence on its own rows, sums over a sequence add its rows, and the
// first row of a sequence stands for its first position. It is right by
// construction: a value that is needed at padding too is computed whole, as in
// the original, and tokens read their rows from it. Such a graph is only worth
// running if attentions and matmuls need tokens only, or there is none.
#ifndef LB_FUSE_RAGGED_H
#define LB_FUSE_RAGGED_H

#include "fuse/tokens.h"

// Parameters of the new graph behind those of the original, of int64.
enum {
  LB_RAGGED_ROWS,       // [tokens]: index of each token in batch * sequence
  LB_RAGGED_POSITIONS,  // [tokens]: index of each token in its sequence
  LB_RAGGED_SEGMENTS,   // [batch + 1]: the first token of each sequence, and
                        // the number of tokens
  LB_RAGGED_PARAMS,
};

typedef struct lb_ragged {
  lb_graph *graph;      // owned; NULL: there is none, see `refusal`
  const char *refusal;  // why not
  uint32_t mask;        // the parameter that is the mask
  // By result, in the graph's arena: it is 0 at padding, where the original has
  // something else, so a caller that wants it needs the original.
  bool *differs;
  bool first;  // the first position of each sequence must be a token
  uint32_t n_attentions;
  uint32_t row_bytes;  // read from whole values for each token
} lb_ragged;

// Analyses and rewrites. The constants of the new graph are those of `g`, which
// must outlive it; both have the same results in the same order. Adds symbols
// to `g`, so no other thread may use its symbols.
lb_status lb_ragged_find(const lb_graph *g, lb_eval_fn *eval, lb_ragged *out);
void lb_ragged_fini(lb_ragged *r);

#endif
