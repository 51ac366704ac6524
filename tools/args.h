// tools/args.h -- the options of a command as a table: reading them, and
// what --help prints of them.
//
// An option is --NAME, or --NAME VALUE, or --NAME=VALUE; it may stand before,
// between or behind other words. `--` ends options. Every command has --help.
#ifndef LIMBER_TOOLS_ARGS_H
#define LIMBER_TOOLS_ARGS_H

#include <stddef.h>

#include "cli.h"

typedef enum option_kind {  // what is stored
  OPTION_FLAG,              // bool: true
  OPTION_TEXT,              // const char *: the last one given
  OPTION_ONCE,  // const char *; one more would be in place of it, not beside it
  OPTION_LIST,  // word_list
  OPTION_NUMBER,   // long long, from low to high
  OPTION_SECONDS,  // double, more than 0
  OPTION_BYTES,    // uint64_t: a number, or K, M, G of them
  OPTION_CHOICE,   // int: the place among `words`
} option_kind;

typedef struct word_list {
  const char **items;  // owned by whoever reads the options: free() it
  size_t n;
} word_list;

typedef struct option_row {
  const char *name;      // without dashes
  const char *argument;  // as help calls it; NULL: a flag
  option_kind kind;
  size_t offset;     // into the command's own struct
  const char *help;  // lines, with \n between them
  long long low, high;
  const char *const *words;  // of a choice, in the order of help; then NULL
  char letter;               // a short form, -v; or 0
} option_row;

// Of commands that open a model; what is stored is for `preference`.
#define OPTION_PREFER_REUSABLE(at)                                    \
  {                                                                   \
    .name = "prefer-reusable-kernels", .argument = "0|1",             \
    .kind = OPTION_CHOICE, .offset = at, .words = option_preferences, \
    .help =                                                           \
        "1: no kernel that takes more than divisibility of sizes\n"   \
        "for granted, where another serves"                           \
  }
extern const char *const option_preferences[];
// As session options have it.
int preference(int choice);

typedef struct command_info {
  const char *name;
  const char *usage;  // what follows the name: "MODEL [OPTION...]"
  const char *about;  // lines before the options; or ""
  const char *more;   // lines behind them; or ""
  const option_row *options;
  size_t n_options;
} command_info;

// The words of a command that are no options; they stay those of argv.
typedef struct words {
  char **items;
  int n;
} words;

// Reads main's arguments, from the command's name on, into `out`, which has the
// defaults. With --help it prints that and returns false, and `p` has the exit
// code 0 and no text.
bool read_options(const command_info *c, int argc, char **argv, void *out,
                  words *rest, problem *p);

// The only word: the model that the command is about.
bool read_model(const command_info *c, const words *rest, const char **out,
                problem *p);

#endif
