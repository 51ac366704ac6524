// api/error.h -- converts an internal status into a public code and the
// message of the calling thread.
#ifndef LB_API_ERROR_H
#define LB_API_ERROR_H

#include "base/log.h"
#include "limber/limber.h"

// Consumes `st` and returns its code. The message of a failure becomes this
// thread's limber_last_error(); the source location of the failure goes to
// `log`, which may be NULL, at level debug.
limber_status lb_report(lb_status st, const lb_log *log);

#endif
