// api/passes.h -- the graph passes that the environment disables.
//
// LIMBER_PASSES=-NAME,-NAME... names passes of graph/passes.def. It helps to
// find the pass that makes a model slow or its results wrong.
#ifndef LB_API_PASSES_H
#define LB_API_PASSES_H

#include <stdint.h>

#include "base/log.h"

// Returns bits of lb_pass_options.off. Unknown entries are ignored; the first
// one in a process causes a warning that lists all names.
uint64_t lb_passes_read(const lb_log *log);

#endif
