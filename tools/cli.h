// tools/cli.h -- what the commands share: exit codes, how they complain, time.
#ifndef LIMBER_TOOLS_CLI_H
#define LIMBER_TOOLS_CLI_H

#include <limber/limber.h>
#include <stdbool.h>

enum {
  EXIT_OK,
  EXIT_BAD,  // a bad model or input, results that differ, time that is over
  EXIT_USAGE,
  EXIT_UNSUPPORTED,
  EXIT_INTERNAL,
};

// Why something went wrong, and the exit code for it.
typedef struct problem {
  int exit;
  char text[4096];
} problem;

// Fills `p`; returns false, for functions that return whether all went well.
bool fail(problem *p, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

// The same with limber_last_error(); `what` is put in front.
bool fail_status(problem *p, limber_status status, const char *what);

double now_ms(void);

// Prints "limber: ...", if there is a text, and returns the exit code.
int complain(const problem *p);

// Each has main's arguments, from the command's name on.
int command_run(int argc, char **argv);
int command_inspect(int argc, char **argv);
int command_warm(int argc, char **argv);
int command_doctor(int argc, char **argv);
int command_primitive(int argc, char **argv);
int command_cache(int argc, char **argv);

#endif
