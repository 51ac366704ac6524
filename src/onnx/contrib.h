// onnx/contrib.h -- operators of ONNX Runtime (domain com.microsoft, and some
// that it has in the ai.onnx domain), as functions of ONNX operators.
#ifndef LB_ONNX_CONTRIB_H
#define LB_ONNX_CONTRIB_H

#include "onnx/import.h"

typedef struct lb_contrib lb_contrib;  // one body; in the scratch arena

// Finds or creates the function that n calls; *out is NULL if n is not such an
// operator. *all is the list of bodies created so far, NULL at first. Attribute
// payloads are allocated in `persistent`.
lb_status lb_contrib_find(lb_contrib **all, lb_arena *scratch,
                          lb_arena *persistent, const lb_pb_node *n,
                          lb_pb_function **out);

// The text of operator i; NULL after the last.
const char *lb_contrib_text(size_t i);

#endif
