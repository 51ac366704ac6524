// api/error.c -- converts a status into a public code and the message of the
// calling thread.
//
// The message is stored in a fixed thread-local buffer, so that reporting a
// failure cannot fail itself. A longer message is truncated.
#include "api/error.h"

#include <stdio.h>
#include <string.h>

#define CUT " ..."

static _Thread_local char last_error[4096];

#define SAME(public, code) \
  _Static_assert((int)(public) == (int)(code), "codes are equal")
SAME(LIMBER_OK, LB_CODE_OK);
SAME(LIMBER_INVALID, LB_INVALID);
SAME(LIMBER_UNSUPPORTED, LB_UNSUPPORTED);
SAME(LIMBER_OOM, LB_OOM);
SAME(LIMBER_IO, LB_IO);
SAME(LIMBER_DEVICE, LB_DEVICE);
SAME(LIMBER_CANCELLED, LB_CANCELLED);
SAME(LIMBER_INTERNAL, LB_INTERNAL);

static void remember(lb_code code, const char *message, const char *where) {
  const size_t cap = sizeof last_error;
  int n = code == LB_INTERNAL
              ? snprintf(last_error, cap, "%s (a bug in Limber, at %s)",
                         message, where)
              : snprintf(last_error, cap, "%s", message);
  if (n >= (int)cap) memcpy(last_error + cap - sizeof CUT, CUT, sizeof CUT);
}

limber_status lb_report(lb_status st, const lb_log *log) {
  if (!lb_failed(st)) return LIMBER_OK;
  lb_code code = lb_status_code(st);
  const char *message = lb_status_message(st), *where = lb_status_where(st);
  remember(code, message, where);
  lb_log_line(log, LB_LOG_DEBUG, "%s: %s [%s]", lb_code_name(code), message,
              where);
  lb_status_drop(st);
  return (limber_status)code;
}

const char *limber_last_error(void) { return last_error; }

const char *limber_status_name(limber_status status) {
  return lb_code_name((lb_code)status);
}
