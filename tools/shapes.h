// tools/shapes.h -- the grammar of --shapes and --dims, and the signatures that
// they describe.
//
//   --shapes 'x=1x3x48x{32..640}'           by input; several with spaces
//   --dims 'batch={1,2,8} seq={8..256/8}'   by symbol of the model
//
// A size is a number, or a set in braces of numbers and ranges. A range
// includes both ends and may have a step. A symbol has one size in a signature,
// whichever inputs use it and whichever option set it. A single number after
// `=` means a vector, nothing after `=` a scalar.
#ifndef LIMBER_TOOLS_SHAPES_H
#define LIMBER_TOOLS_SHAPES_H

#include "cli.h"

typedef struct shapes shapes;

typedef struct shapes_of {
  const limber_value_info *inputs;  // of the model; n of them
  size_t n;
  // For each input: a tensor whose shape it has, or NULL. NULL: none.
  const limber_tensor *const *fixed;
  const char *shapes, *dims;  // values of the options, or NULL
} shapes_of;

// Parses the options. The inputs must outlive *out, which is NULL on failure.
bool shapes_new(const shapes_of *of, shapes **out, problem *p);
void shapes_free(shapes *s);  // NULL is fine

// Returns the number of signatures that the options describe.
uint64_t shapes_count(const shapes *s);

// Selects `n` of them: all in order if there are no more than that, otherwise
// random ones, each at most once. Equal seeds select the same.
bool shapes_draw(shapes *s, uint64_t n, uint64_t seed, problem *p);
uint64_t shapes_drawn(const shapes *s);

// Sets names, dtypes and dims of all inputs for selected signature i; data is
// left as it is.
void shapes_get(const shapes *s, uint64_t i, limber_tensor *inputs);

#endif
