// onnx/contrib.h -- operators of ONNX Runtime (the domain com.microsoft, and
// some that it keeps in ONNX's own), as functions of operators of ONNX.
#ifndef LB_ONNX_CONTRIB_H
#define LB_ONNX_CONTRIB_H

#include "onnx/import.h"

typedef struct lb_contrib lb_contrib;  // one body; in the scratch arena

// The function that n calls; NULL in *out: it is no such operator. Bodies made
// so far are in *all, which starts as NULL. Attributes' payloads lie in `keep`.
lb_status lb_contrib_find(lb_contrib **all, lb_arena *scratch, lb_arena *keep,
                          const lb_pb_node *n, lb_pb_function **out);

// The text of operator i; NULL: there are no more.
const char *lb_contrib_text(size_t i);

#endif
