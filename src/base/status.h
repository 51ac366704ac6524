// base/status.h -- the one way to fail.
//
// Success is {NULL}. A failure owns its error: code, message, trail of calls.
// The receiver of a status must return it, handle it or drop it, exactly once.
// If malloc fails while an error is created, the result is a shared static
// LB_OOM error, so creating an error never fails.
#ifndef LB_BASE_STATUS_H
#define LB_BASE_STATUS_H

#include <stdbool.h>
#include <stddef.h>

// gcc supports this attribute for functions only, so clang finds lost statuses.
#ifdef __clang__
#define LB_NODISCARD __attribute__((warn_unused_result))
#else
#define LB_NODISCARD
#endif
#define LB_PRINTF(f, a) __attribute__((format(printf, f, a)))
// The compiler moves calls of cold functions away from the normal path.
#define LB_COLD __attribute__((cold))

// Codes are chosen by how the caller can react.
typedef enum lb_code {
  LB_CODE_OK,
  LB_INVALID,      // bad model, bad input, bad argument
  LB_UNSUPPORTED,  // valid, but not supported by Limber or by this machine
  LB_OOM,
  LB_IO,
  LB_DEVICE,
  LB_CANCELLED,
  LB_INTERNAL,  // a bug in Limber
} lb_code;

typedef struct LB_NODISCARD lb_status {
  struct lb_error *err;
} lb_status;

#define LB_OK ((lb_status){NULL})
#define lb_error(code, ...) \
  lb_assume_failed(lb_error_at(__FILE__, __LINE__, code, __VA_ARGS__))
#define lb_oom() lb_error(LB_OOM, "out of memory")

// Tells the compiler that `s` is a failure, which avoids false warnings that
// outputs may be used uninitialised.
static inline lb_status lb_assume_failed(lb_status s) {
  if (!s.err) __builtin_unreachable();
  return s;
}

LB_COLD lb_status lb_error_at(const char *file, int line, lb_code code,
                              const char *fmt, ...) LB_PRINTF(4, 5);

static inline bool lb_failed(lb_status s) { return s.err != NULL; }

// Appends a source location to the trail; returns the same status.
LB_COLD lb_status lb_status_trail(lb_status s, const char *file, int line);

// Prefixes the message with context: "<note>: <message>".
LB_COLD lb_status lb_status_note(lb_status s, const char *fmt, ...)
    LB_PRINTF(2, 3);

lb_code lb_status_code(lb_status s);         // LB_CODE_OK for success
const char *lb_status_message(lb_status s);  // "" for success; borrowed
// "file.c:12 < other.c:40": the origin, then the callers that passed it on;
// borrowed.
const char *lb_status_where(lb_status s);
const char *lb_code_name(lb_code code);  // "invalid", "out of memory", ...

void lb_status_drop(lb_status s);  // frees the error; success is fine

// For functions that own no resources. Others use a `done:` label.
#define LB_TRY(expr)                                                      \
  do {                                                                    \
    lb_status try_ = (expr);                                              \
    if (lb_failed(try_))                                                  \
      return lb_assume_failed(lb_status_trail(try_, __FILE__, __LINE__)); \
  } while (0)

#endif
