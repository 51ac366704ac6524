// tools/args_test.c -- tests the parsing of options, and its errors.
#include "args.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct into {
  bool flag;
  const char *text, *once;
  word_list list;
  long long number;
  double seconds;
  uint64_t bytes;
  int choice, prefer;
} into;

static const char *const colours[] = {"red", "green", "blue", NULL};

#define AT(field) offsetof(into, field)
static const option_row rows[] = {
    {.name = "flag",
     .kind = OPTION_FLAG,
     .offset = AT(flag),
     .help = "a flag",
     .letter = 'f'},
    {.name = "text",
     .argument = "T",
     .kind = OPTION_TEXT,
     .offset = AT(text),
     .help = "a text"},
    {.name = "once",
     .argument = "T",
     .kind = OPTION_ONCE,
     .offset = AT(once),
     .help = "one"},
    {.name = "list",
     .argument = "T",
     .kind = OPTION_LIST,
     .offset = AT(list),
     .help = "some"},
    {.name = "number",
     .argument = "N",
     .kind = OPTION_NUMBER,
     .offset = AT(number),
     .help = "a number",
     .low = -2,
     .high = 9},
    {.name = "seconds",
     .argument = "S",
     .kind = OPTION_SECONDS,
     .offset = AT(seconds),
     .help = "seconds"},
    {.name = "bytes",
     .argument = "B",
     .kind = OPTION_BYTES,
     .offset = AT(bytes),
     .help = "bytes"},
    {.name = "colour",
     .argument = "C",
     .kind = OPTION_CHOICE,
     .offset = AT(choice),
     .help = "a word",
     .words = colours},
    OPTION_PREFER_REUSABLE(AT(prefer)),
};

static const command_info command = {
    .name = "try",
    .usage = "MODEL",
    .about = "",
    .more = "",
    .options = rows,
    .n_options = sizeof rows / sizeof *rows,
};

// Splits a text at its spaces.
static bool read(const char *line, into *out, words *rest, problem *p) {
  static char copy[256];
  static char *argv[32];
  int argc = 0;
  snprintf(copy, sizeof copy, "try %s", line);
  for (char *word = strtok(copy, " "); word; word = strtok(NULL, " "))
    argv[argc++] = word;
  *out = (into){.number = 7};
  *p = (problem){0};
  return read_options(&command, argc, argv, out, rest, p);
}

static void values_may_follow_a_space_or_an_equals_sign(void **state) {
  (void)state;
  into o;
  words rest;
  problem p;
  assert_true(
      read("--flag --text a --once=b --list x --list=y --number -2 "
           "--seconds 0.5 --bytes 3K --colour blue",
           &o, &rest, &p));
  assert_true(o.flag);
  assert_string_equal(o.text, "a");
  assert_string_equal(o.once, "b");
  assert_int_equal(o.list.n, 2);
  assert_string_equal(o.list.items[1], "y");
  assert_int_equal(o.number, -2);
  assert_true(o.seconds == 0.5);
  assert_int_equal(o.bytes, 3 << 10);
  assert_int_equal(o.choice, 2);
  assert_int_equal(rest.n, 0);
  free(o.list.items);
  assert_true(read("-f --text= --text=--odd", &o, &rest, &p));
  assert_true(o.flag);
  assert_string_equal(o.text, "--odd");
  assert_int_equal(o.number, 7);
}

static void words_may_precede_or_follow_options(void **state) {
  (void)state;
  into o;
  words rest;
  problem p;
  assert_true(read("one --number 3 two - --flag -- --flag -x", &o, &rest, &p));
  assert_int_equal(rest.n, 5);
  assert_string_equal(rest.items[0], "one");
  assert_string_equal(rest.items[1], "two");
  assert_string_equal(rest.items[2], "-");
  assert_string_equal(rest.items[3], "--flag");
  assert_string_equal(rest.items[4], "-x");
}

static void a_preference_is_given_or_unset(void **state) {
  (void)state;
  into o;
  words rest;
  problem p;
  assert_true(read("", &o, &rest, &p));
  assert_int_equal(preference(o.prefer), 0);
  assert_true(read("--prefer-reusable-kernels 1", &o, &rest, &p));
  assert_int_equal(preference(o.prefer), 1);
  assert_true(read("--prefer-reusable-kernels=0", &o, &rest, &p));
  assert_int_equal(preference(o.prefer), -1);
}

static void errors_name_the_option(void **state) {
  (void)state;
  static const char *const cases[][2] = {
      {"--fly", "unknown option --fly; see limber try --help"},
      {"-z", "unknown option -z; see limber try --help"},
      {"-ff", "unknown option -ff; see limber try --help"},
      {"--flags", "unknown option --flags; see limber try --help"},
      {"--fla", "unknown option --fla; see limber try --help"},
      {"--flag=1", "--flag takes no value; see limber try --help"},
      {"--text", "--text needs T; see limber try --help"},
      {"--once a --once b", "--once was given twice: use --once 'a b'"},
      {"--number 10", "--number 10: must be a number from -2 to 9"},
      {"--number x", "--number x: must be a number from -2 to 9"},
      {"--number=", "--number : must be a number from -2 to 9"},
      {"--number 99999999999999999999",
       "--number 99999999999999999999: must be a number from -2 to 9"},
      {"--seconds 0", "--seconds 0: must be seconds, more than 0"},
      {"--bytes -1",
       "--bytes -1: must be a number of bytes, with an optional suffix K, M or "
       "G"},
      {"--bytes 1T",
       "--bytes 1T: must be a number of bytes, with an optional suffix K, M or "
       "G"},
      {"--colour pink", "--colour pink: must be red, green or blue"},
      {"--prefer-reusable-kernels 2",
       "--prefer-reusable-kernels 2: must be 0 or 1"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    into o;
    words rest;
    problem p;
    assert_false(read(cases[i][0], &o, &rest, &p));
    assert_int_equal(p.exit, EXIT_USAGE);
    assert_string_equal(p.text, cases[i][1]);
  }
}

static void help_is_not_an_error(void **state) {
  (void)state;
  into o;
  words rest;
  problem p;
  assert_false(read("a --help --fly", &o, &rest, &p));
  assert_int_equal(p.exit, EXIT_OK);
  assert_string_equal(p.text, "");
  assert_int_equal(print_problem(&p), EXIT_OK);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(values_may_follow_a_space_or_an_equals_sign),
      cmocka_unit_test(words_may_precede_or_follow_options),
      cmocka_unit_test(a_preference_is_given_or_unset),
      cmocka_unit_test(errors_name_the_option),
      cmocka_unit_test(help_is_not_an_error),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
