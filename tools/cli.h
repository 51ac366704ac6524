// tools/cli.h -- exit codes, error reporting and time, shared by all commands.
#ifndef LIMBER_TOOLS_CLI_H
#define LIMBER_TOOLS_CLI_H

#include <limber/limber.h>
#include <stdbool.h>

enum {
  EXIT_OK,
  EXIT_BAD,  // invalid model or input, results that differ, or a timeout
  EXIT_USAGE,
  EXIT_UNSUPPORTED,
  EXIT_INTERNAL,
};

// An error message and the exit code for it.
typedef struct problem {
  int exit;
  char text[4096];
} problem;

// Fills `p` and returns false, so that a function can return its result.
bool fail(problem *p, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

// Does the same with limber_last_error() as message, prefixed by `what`.
bool fail_status(problem *p, limber_status status, const char *what);

double now_ms(void);

// Prints "limber: MESSAGE" if there is a message, and returns the exit code.
int print_problem(const problem *p);

// The commands. Each gets the arguments of main, from its own name on.
int command_run(int argc, char **argv);
int command_explain(int argc, char **argv);
int command_inspect(int argc, char **argv);
int command_warm(int argc, char **argv);
int command_doctor(int argc, char **argv);
int command_primitive(int argc, char **argv);
int command_cache(int argc, char **argv);

#endif
