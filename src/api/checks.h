// api/checks.h -- how runs check the memory that they reuse.
//
// LIMBER_CHECK_MEMORY=separate,poison (one of them, or both) helps to find a
// value that is read after another one took its memory, or before it was
// written: with `separate` the values of a run never share memory that they
// only reuse; with `poison` memory without a live value is filled with NaN
// between steps. Results must not change.
#ifndef LB_API_CHECKS_H
#define LB_API_CHECKS_H

#include "base/log.h"

// Returns bits of lb_memory_check. Unknown entries are ignored with a warning.
unsigned lb_checks_read(const lb_log *log);

#endif
