// tools/args.h -- the options of a command as a table, from which they are
// parsed and --help is printed.
//
// An option is --NAME, --NAME VALUE or --NAME=VALUE. Options may precede or
// follow the other words. `--` ends the options. Every command has --help.
#ifndef LIMBER_TOOLS_ARGS_H
#define LIMBER_TOOLS_ARGS_H

#include <stddef.h>

#include "cli.h"

typedef enum option_kind {  // the type of the stored value
  OPTION_FLAG,              // bool: true
  OPTION_TEXT,              // const char *: the last one given
  OPTION_ONCE,              // const char *; giving it twice is an error
  OPTION_LIST,              // word_list
  OPTION_NUMBER,            // long long, from low to high
  OPTION_SECONDS,           // double, more than 0
  OPTION_BYTES,   // uint64_t: a number with an optional suffix K, M or G
  OPTION_CHOICE,  // int: the index in `words`
} option_kind;

typedef struct word_list {
  const char **items;  // owned by the caller of read_options, who frees it
  size_t n;
} word_list;

typedef struct option_row {
  const char *name;      // without dashes
  const char *argument;  // the value's name in help; NULL: a flag
  option_kind kind;
  size_t offset;     // into the command's own struct
  const char *help;  // lines, separated by \n
  long long low, high;
  const char *const *words;  // the words of a choice, then NULL
  char letter;               // the short form, as in -v; 0: none
} option_row;

// The option of commands that open a model. `preference` converts its value.
#define OPTION_PREFER_REUSABLE(at)                                    \
  {                                                                   \
    .name = "prefer-reusable-kernels", .argument = "0|1",             \
    .kind = OPTION_CHOICE, .offset = at, .words = option_preferences, \
    .help =                                                           \
        "1: use no kernel that assumes more about sizes than\n"       \
        "divisibility where a reusable one serves"                    \
  }
extern const char *const option_preferences[];
// Returns the value for limber_session_options.prefer_reusable_kernels.
int preference(int choice);

// The option of commands that plan.
#define OPTION_SKIP(at)                                                        \
  {                                                                            \
    .name = "skip", .argument = "on|off", .kind = OPTION_CHOICE, .offset = at, \
    .words = option_switches,                                                  \
    .help =                                                                    \
        "on: skip nodes that do nothing at the shapes of a run\n"              \
        "off: run them; default: as LIMBER_SKIP says, else on"                 \
  }
extern const char *const option_switches[];
// Returns the value of an option of the library: 1, -1, or 0 if not given.
int switch_option(int choice);

typedef struct command_info {
  const char *name;
  const char *usage;  // what follows the name: "MODEL [OPTION...]"
  const char *about;  // lines before the options; or ""
  const char *more;   // lines after the options; or ""
  const option_row *options;
  size_t n_options;
} command_info;

// The words of a command that are not options; they are borrowed from argv.
typedef struct words {
  char **items;
  int n;
} words;

// Parses the arguments of main, from the command's name on, into `out`, which
// holds the defaults. For --help it prints the help and returns false, with
// exit code 0 and no text in `p`.
bool read_options(const command_info *c, int argc, char **argv, void *out,
                  words *rest, problem *p);

// Returns the only word: the model's path.
bool read_model(const command_info *c, const words *rest, const char **out,
                problem *p);

#endif
