// tools/cli.c -- what the commands share: exit codes, how they complain,
// numbers of options, time.
#include "cli.h"

#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
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

bool read_number(const char *name, const char *text, long long low,
                 long long high, long long *out, problem *p) {
  char *end;
  errno = 0;
  *out = strtoll(text, &end, 10);
  if (end != text && !*end && !errno && *out >= low && *out <= high)
    return true;
  return fail(p, EXIT_USAGE, "--%s %s: say a number from %lld to %lld", name,
              text, low, high);
}

bool read_seconds(const char *name, const char *text, double *out, problem *p) {
  char *end;
  *out = strtod(text, &end);
  if (end != text && !*end && *out > 0) return true;
  return fail(p, EXIT_USAGE, "--%s %s: say seconds, more than 0", name, text);
}

bool read_once(const char *name, const char *text, const char **out,
               problem *p) {
  if (*out)
    return fail(p, EXIT_USAGE, "--%s was given twice: say --%s '%s %s'", name,
                name, *out, text);
  *out = text;
  return true;
}

bool read_preference(const char *text, int *out, problem *p) {
  long long n;
  if (!read_number("prefer-reusable-kernels", text, 0, 1, &n, p)) return false;
  *out = n ? 1 : -1;
  return true;
}

bool read_model(const char *command, int argc, char **argv, const char **out,
                problem *p) {
  if (argc - optind != 1)
    return fail(p, EXIT_USAGE, "%s; see limber %s --help",
                optind == argc ? "which model?" : "one model at a time",
                command);
  *out = argv[optind];
  return true;
}

double now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

int complain(const problem *p) {
  fprintf(stderr, "limber: %s\n", p->text);
  return p->exit;
}
