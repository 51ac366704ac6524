// tools/args.c -- parses the options of a command and prints its help.
#include "args.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The first entry stands for an option that was not given; no word matches it.
const char *const option_preferences[] = {"", "0", "1", NULL};
const char *const option_switches[] = {"", "on", "off", NULL};

int preference(int choice) { return choice == 0 ? 0 : choice == 2 ? 1 : -1; }
int switch_option(int choice) { return choice == 0 ? 0 : choice == 1 ? 1 : -1; }

// -- help --------------------------------------------------------------------

#define COLUMN 20  // the column of an option's help text

static void print_lines(int at, const char *text) {
  for (;;) {
    int n = (int)strcspn(text, "\n");
    printf("%*s%.*s\n", COLUMN - at, "", n, text);
    if (!text[n]) return;
    text += n + 1;
    at = 0;
  }
}

static void print_row(const option_row *o) {
  int n = printf("  --%s", o->name);
  if (o->argument) n += printf(" %s", o->argument);
  if (n > COLUMN - 2) {
    printf("\n");
    n = 0;
  }
  print_lines(n, o->help);
}

static void print_help(const command_info *c) {
  printf("usage: limber %s %s\n\n%s", c->name, c->usage, c->about);
  if (*c->about) printf("\n");
  for (size_t i = 0; i < c->n_options; i++) print_row(&c->options[i]);
  if (*c->more) printf("\n%s", c->more);
}

// -- values ------------------------------------------------------------------

static bool set_number(const option_row *o, const char *text, long long *out,
                       problem *p) {
  char *end;
  errno = 0;
  *out = strtoll(text, &end, 10);
  if (end != text && !*end && !errno && *out >= o->low && *out <= o->high)
    return true;
  return fail(p, EXIT_USAGE, "--%s %s: must be a number from %lld to %lld",
              o->name, text, o->low, o->high);
}

static bool set_seconds(const option_row *o, const char *text, double *out,
                        problem *p) {
  char *end;
  *out = strtod(text, &end);
  if (end != text && !*end && *out > 0) return true;
  return fail(p, EXIT_USAGE, "--%s %s: must be seconds, more than 0", o->name,
              text);
}

static bool set_bytes(const option_row *o, const char *text, uint64_t *out,
                      problem *p) {
  char *end;
  unsigned long long n = strtoull(text, &end, 10);
  int shift = *end == 'K' ? 10 : *end == 'M' ? 20 : *end == 'G' ? 30 : 0;
  if (shift) end++;
  if (end == text || *end || *text == '-' || n > UINT64_MAX >> shift)
    return fail(p, EXIT_USAGE,
                "--%s %s: must be a number of bytes, with an optional suffix "
                "K, M or G",
                o->name, text);
  *out = n << shift;
  return true;
}

static bool set_once(const option_row *o, const char *text, const char **out,
                     problem *p) {
  if (*out)
    return fail(p, EXIT_USAGE, "--%s was given twice: use --%s '%s %s'",
                o->name, o->name, *out, text);
  *out = text;
  return true;
}

static bool set_choice(const option_row *o, const char *text, int *out,
                       problem *p) {
  char list[256];
  size_t n = 0;
  for (int i = 0; o->words[i]; i++) {
    if (!*o->words[i]) continue;
    if (!strcmp(o->words[i], text)) return *out = i, true;
    const char *before = !n ? "" : o->words[i + 1] ? ", " : " or ";
    n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", before,
                          o->words[i]);
  }
  return fail(p, EXIT_USAGE, "--%s %s: must be %s", o->name, text, list);
}

// The list has space for argc items, and there are at most as many.
static bool add_item(word_list *list, const char *text, int argc, problem *p) {
  if (!list->items) list->items = calloc((size_t)argc, sizeof *list->items);
  if (!list->items) return fail(p, EXIT_INTERNAL, "out of memory");
  list->items[list->n++] = text;
  return true;
}

static bool set_value(const option_row *o, const char *text, int argc,
                      void *into, problem *p) {
  void *at = (char *)into + o->offset;
  switch (o->kind) {
    case OPTION_FLAG: *(bool *)at = true; return true;
    case OPTION_TEXT: *(const char **)at = text; return true;
    case OPTION_ONCE: return set_once(o, text, at, p);
    case OPTION_LIST: return add_item(at, text, argc, p);
    case OPTION_NUMBER: return set_number(o, text, at, p);
    case OPTION_SECONDS: return set_seconds(o, text, at, p);
    case OPTION_BYTES: return set_bytes(o, text, at, p);
    case OPTION_CHOICE: return set_choice(o, text, at, p);
  }
  return false;
}

// -- reading -----------------------------------------------------------------

// Whether `word` is this option. *value is set to its value if that is in the
// same word, else to NULL.
static bool names(const option_row *o, const char *word, const char **value) {
  size_t n = strlen(o->name);
  *value = NULL;
  if (word[1] != '-') return o->letter && word[1] == o->letter && !word[2];
  if (strncmp(word + 2, o->name, n)) return false;
  if (word[2 + n] == '=') *value = word + 3 + n;
  return !word[2 + n] || *value;
}

// Parses the option at argv[*i] and advances *i past its value.
static bool read_option(const command_info *c, int argc, char **argv, int *i,
                        void *out, problem *p) {
  const char *word = argv[*i], *value;
  for (size_t k = 0; k < c->n_options; k++) {
    const option_row *o = &c->options[k];
    if (!names(o, word, &value)) continue;
    if (value && !o->argument)
      return fail(p, EXIT_USAGE, "--%s takes no value; see limber %s --help",
                  o->name, c->name);
    if (!value && o->argument && *i + 1 < argc) value = argv[++*i];
    if (!value && o->argument)
      return fail(p, EXIT_USAGE, "--%s needs %s; see limber %s --help", o->name,
                  o->argument, c->name);
    return set_value(o, value, argc, out, p);
  }
  return fail(p, EXIT_USAGE, "unknown option %s; see limber %s --help", word,
              c->name);
}

static bool is_help(const char *word) {
  return !strcmp(word, "--help") || !strcmp(word, "-h");
}

// Moves the words that are not options to the front of argv.
bool read_options(const command_info *c, int argc, char **argv, void *out,
                  words *rest, problem *p) {
  bool ended = false;
  *rest = (words){.items = argv};
  for (int i = 1; i < argc; i++) {
    if (ended || argv[i][0] != '-' || !argv[i][1]) {
      rest->items[rest->n++] = argv[i];
    } else if (!strcmp(argv[i], "--")) {
      ended = true;
    } else if (is_help(argv[i])) {
      print_help(c);
      p->exit = EXIT_OK;
      return false;
    } else if (!read_option(c, argc, argv, &i, out, p)) {
      return false;
    }
  }
  return true;
}

bool read_model(const command_info *c, const words *rest, const char **out,
                problem *p) {
  if (rest->n != 1)
    return fail(
        p, EXIT_USAGE, "%s; see limber %s --help",
        rest->n ? "more than one model was given" : "no model was given",
        c->name);
  *out = rest->items[0];
  return true;
}
