// graph/proof.h -- why a node did not run: what its skip rule has proved.
#ifndef LB_GRAPH_PROOF_H
#define LB_GRAPH_PROOF_H

#include "graph/graph.h"

typedef enum lb_proof_kind {
#define LB_PROOF(id, text) LB_PROOF_##id,
#include "graph/proofs.def"
  LB_PROOF_COUNT
} lb_proof_kind;

// Writes the proof as a phrase, such as "Transpose [0,2,1,3] of [128,1,32,64]:
// dim 1 is 1, the others keep their order", truncated if it is too long.
// `dims` are those of the input that the outputs are views of; NULL: not known.
// Returns buf.
char *lb_proof_print(const lb_node *n, const lb_proof *p, int rank,
                     const int64_t *dims, char *buf, size_t cap);

#endif
