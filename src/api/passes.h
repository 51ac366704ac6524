// api/passes.h -- which passes over graphs the environment switches off.
//
// LIMBER_PASSES=-NAME,-NAME... names passes of graph/passes.def. It serves to
// find the pass that makes a model slow or wrong.
#ifndef LB_API_PASSES_H
#define LB_API_PASSES_H

#include <stdint.h>

#include "base/log.h"

// Bits of lb_pass_options.off. The first unknown entry of a process is one
// warning, which lists the names that there are; other entries hold.
uint64_t lb_passes_read(const lb_log *log);

#endif
