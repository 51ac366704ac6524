// tools/main.c -- the `limber` command: selects the subcommand, prints help.
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cli.h"

static const char help[] =
    "usage: limber COMMAND [MODEL] [OPTION...]\n"
    "\n"
    "  limber run MODEL       runs an ONNX model\n"
    "  limber explain MODEL   shows what a run executes, skips and copies\n"
    "  limber inspect MODEL   shows its inputs, outputs and operators\n"
    "  limber warm MODEL      compiles the kernels for expected shapes\n"
    "  limber doctor          shows the configuration on this machine\n"
    "  limber primitive CASE  runs an operator without a model\n"
    "  limber cache ACTION    shows and manages the kernels stored on disk\n"
    "\n"
    "  limber COMMAND --help  the options of a command\n"
    "  limber --version\n"
    "\n"
    "exit codes: 0 ok, 1 invalid model or input, 2 usage, 3 unsupported,\n"
    "            4 out of memory or internal error\n";

static const struct {
  const char *name;
  int (*run)(int argc, char **argv);
} commands[] = {
    {"run", command_run},         {"explain", command_explain},
    {"inspect", command_inspect}, {"warm", command_warm},
    {"doctor", command_doctor},   {"primitive", command_primitive},
    {"cache", command_cache},
};

static int command(int argc, char **argv) {
  const char *word = argc > 1 ? argv[1] : "";
  if (!strcmp(word, "--help") || !strcmp(word, "-h")) {
    fputs(help, stdout);
    return EXIT_OK;
  }
  if (!strcmp(word, "--version")) {
    printf("limber %s\n", limber_version());
    return EXIT_OK;
  }
  for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
    if (!strcmp(word, commands[i].name))
      return commands[i].run(argc - 1, argv + 1);
  if (*word) fprintf(stderr, "limber: unknown command '%s'\n", word);
  fputs(help, stderr);
  return EXIT_USAGE;
}

// A failed write to standard output must not look like success.
int main(int argc, char **argv) {
  int code = command(argc, argv);
  if (!fflush(stdout) && !ferror(stdout)) return code;
  fprintf(stderr, "limber: cannot write the results: %s\n", strerror(errno));
  return code ? code : EXIT_BAD;
}
