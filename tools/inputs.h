// tools/inputs.h -- the inputs of runs: some from --input, the others random
// numbers of the shapes that --shapes and --dims describe.
#ifndef LIMBER_TOOLS_INPUTS_H
#define LIMBER_TOOLS_INPUTS_H

#include "args.h"
#include "shapes.h"

typedef struct inputs_options {
  word_list given;            // values of --input
  const char *shapes, *dims;  // values of the options, or NULL
  long long seed;
} inputs_options;

// Zero before inputs_read.
typedef struct inputs {
  const limber_value_info *infos;  // of the model; n of them
  size_t n;
  uint64_t seed;
  shapes *shapes;        // NULL: every input is given
  limber_tensor *feeds;  // n_feeds, owned: first those of --input
  size_t n_feeds, n_given;
} inputs;

// Parses the options. A missing input is an error that suggests options.
bool inputs_read(const limber_session *session, const inputs_options *o,
                 inputs *out, problem *p);
void inputs_fini(inputs *in);

// Returns the number of signatures that the options describe.
uint64_t inputs_count(const inputs *in);

// Sets `feeds` to the inputs of signature i.
bool inputs_select(inputs *in, uint64_t i, problem *p);

#endif
