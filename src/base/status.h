// base/status.h -- the one way to fail.
//
// Success is {NULL}. A failure owns its error: code, message, trail of calls.
// Whoever receives a status returns it, handles it or drops it, exactly once.
// A failed malloc inside the error path itself yields a shared static error,
// so making an error never fails.
#ifndef LB_BASE_STATUS_H
#define LB_BASE_STATUS_H

#include <stdbool.h>
#include <stddef.h>

// gcc has it for functions alone, so a dropped status is clang's to find.
#ifdef __clang__
#define LB_NODISCARD __attribute__((warn_unused_result))
#else
#define LB_NODISCARD
#endif
#define LB_PRINTF(f, a) __attribute__((format(printf, f, a)))
// What leads to it lies apart from the code that runs when all goes well.
#define LB_COLD __attribute__((cold))

// Codes say what the caller can do about it.
typedef enum lb_code {
  LB_CODE_OK,
  LB_INVALID,      // bad model, bad input, bad argument
  LB_UNSUPPORTED,  // sound, but not something Limber does
  LB_OOM,
  LB_IO,
  LB_DEVICE,
  LB_CANCELLED,
  LB_INTERNAL,  // a bug of ours
} lb_code;

typedef struct LB_NODISCARD lb_status {
  struct lb_error *err;
} lb_status;

#define LB_OK ((lb_status){NULL})
#define lb_error(code, ...) \
  lb_sure(lb_error_at(__FILE__, __LINE__, code, __VA_ARGS__))
#define lb_oom() lb_error(LB_OOM, "out of memory")

// Tells the compiler that this is a failure, so that it does not take outputs
// for read before they were set.
static inline lb_status lb_sure(lb_status s) {
  if (!s.err) __builtin_unreachable();
  return s;
}

LB_COLD lb_status lb_error_at(const char *file, int line, lb_code code,
                              const char *fmt, ...) LB_PRINTF(4, 5);

static inline bool lb_failed(lb_status s) { return s.err != NULL; }

// Adds one place to the trail; returns the same status.
LB_COLD lb_status lb_status_trail(lb_status s, const char *file, int line);

// Puts context in front of the message: "<note>: <message>".
LB_COLD lb_status lb_status_note(lb_status s, const char *fmt, ...)
    LB_PRINTF(2, 3);

lb_code lb_status_code(lb_status s);         // LB_CODE_OK for success
const char *lb_status_message(lb_status s);  // "" for success; borrowed
// "file.c:12 < other.c:40": where it began, then who passed it on; borrowed.
const char *lb_status_where(lb_status s);
const char *lb_code_name(lb_code code);  // "invalid", "out of memory", ...

void lb_status_drop(lb_status s);  // frees the error; success is fine

// For functions that hold nothing. A function that owns something uses `done:`.
#define LB_TRY(expr)                                             \
  do {                                                           \
    lb_status try_ = (expr);                                     \
    if (lb_failed(try_))                                         \
      return lb_sure(lb_status_trail(try_, __FILE__, __LINE__)); \
  } while (0)

#endif
