// spec/canon.h -- canonical form. Internal to this module.
#ifndef LB_SPEC_CANON_H
#define LB_SPEC_CANON_H

#include "spec/spec.h"

// The canonical form of `s`. Its counts must be within limits, sources must be
// earlier nodes, and every INPUT and SCALAR number must have exactly one node.
void lb_spec_canonical(const lb_spec *s, lb_spec *out);

// The error in a node whose sources are valid; NULL: none.
const char *lb_snode_check(const lb_spec *s, const lb_snode *n);

#endif
