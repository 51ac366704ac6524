// spec/canon.h -- for the room alone: one way to write each spec.
#ifndef LB_SPEC_CANON_H
#define LB_SPEC_CANON_H

#include "spec/spec.h"

// The canonical form of `s`, whose counts are within limits, sources are
// earlier nodes, and every INPUT and SCALAR number has exactly one node.
void lb_spec_canonical(const lb_spec *s, lb_spec *out);

// NULL, or what is wrong with a node whose sources are sound.
const char *lb_snode_check(const lb_spec *s, const lb_snode *n);

#endif
