// fuse/tokens.h -- follows the tokens of a padded batch through a graph.
//
// A *mask* is an input [batch, sequence] that is 1 for tokens and 0 for
// padding. The analysis proves, operator by operator, for each value
//   - that an element depends on the mask at one position only, and on nothing
//     else: then it has one value where the mask is 0 and another where it is
//     1;
//   - along which axes its rows are the positions of the batch, and that a row
//     at a token depends on rows of the same position, or, past an attention
//     whose mask hides padding, on other tokens of the same sequence: never on
//     padding.
// The rows of tokens of such a value can be computed from the rows of tokens of
// its inputs. Nothing is assumed about the names of inputs.
#ifndef LB_FUSE_TOKENS_H
#define LB_FUSE_TOKENS_H

#include "graph/pass.h"

typedef enum lb_token_kind {
  LB_TOKENS_NONE,     // nothing is known
  LB_TOKENS_UNIFORM,  // all elements are `valid`
  LB_TOKENS_MASK,     // `masked` where the mask is 0, `valid` where it is 1
  LB_TOKENS_ROWS,     // rows of positions, whatever they depend on
} lb_token_kind;

typedef struct lb_token_fact {
  lb_token_kind kind;
  int batch, seq;  // axes of MASK and ROWS; equal: one axis of all positions
  double masked, valid;
  bool zero;        // ROWS: 0 at padding, if what is there is finite
  double at_least;  // a lower bound of all elements; -INFINITY: unknown
} lb_token_fact;

// How a node that is computed on the rows of tokens reads an input.
typedef enum lb_token_operand {
  LB_OPERAND_WHOLE,     // it is the same for every position
  LB_OPERAND_ROWS,      // its rows of tokens
  LB_OPERAND_NUMBER,    // one number: its element at tokens
  LB_OPERAND_POSITION,  // by the position in the sequence
} lb_token_operand;

typedef struct lb_tokens {
  const lb_graph *graph;  // borrowed
  lb_eval_fn *eval;
  lb_arena *arena;         // borrowed; holds everything below
  lb_dim batch, seq, all;  // all: batch * seq
  uint32_t mask;           // index of the parameter
  lb_token_fact *facts;    // by value id
  // By node id: how each input is read if the node can be computed on the rows
  // of tokens; NULL: it cannot.
  uint8_t **operands;
  uint32_t n_attentions;  // of these nodes
} lb_tokens;

// Whether parameter number i can be the mask of a batch.
bool lb_tokens_may_mask(const lb_graph *g, uint32_t i);

// Analyses the main region with parameter `mask` as the mask. New dims are
// added to the graph's symbols, so no other thread may use these.
lb_status lb_tokens_find(const lb_graph *g, uint32_t mask, lb_eval_fn *eval,
                         lb_arena *arena, lb_tokens *out);

// What is known of v; a constant may be NULL.
lb_token_fact lb_tokens_fact(const lb_tokens *t, const lb_value *v);

#endif
