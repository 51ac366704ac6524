// tools/cli.c -- exit codes, error reporting and time, shared by all commands.
#include "cli.h"

#include <stdarg.h>
#include <stdio.h>
#include <time.h>

static const int exits[] = {
    [LIMBER_OK] = EXIT_OK,
    [LIMBER_INVALID] = EXIT_BAD,
    [LIMBER_UNSUPPORTED] = EXIT_UNSUPPORTED,
    [LIMBER_OOM] = EXIT_INTERNAL,
    [LIMBER_IO] = EXIT_BAD,
    [LIMBER_DEVICE] = EXIT_INTERNAL,
    [LIMBER_CANCELLED] = EXIT_BAD,
    [LIMBER_INTERNAL] = EXIT_INTERNAL,
};

bool fail(problem *p, int code, const char *format, ...) {
  va_list ap;
  p->exit = code;
  va_start(ap, format);
  vsnprintf(p->text, sizeof p->text, format, ap);
  va_end(ap);
  return false;
}

bool fail_status(problem *p, limber_status status, const char *what) {
  return fail(p, exits[status], "%s: %s", what, limber_last_error());
}

double now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

int print_problem(const problem *p) {
  if (*p->text) fprintf(stderr, "limber: %s\n", p->text);
  return p->exit;
}
