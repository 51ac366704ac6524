// api/error.h -- from a status to a code and this thread's message.
#ifndef LB_API_ERROR_H
#define LB_API_ERROR_H

#include "base/log.h"
#include "limber/limber.h"

// Consumes `st`. A failure becomes what limber_last_error() says on this
// thread; where it came from goes to `log` (which may be NULL) at level debug.
limber_status lb_report(lb_status st, const lb_log *log);

#endif
