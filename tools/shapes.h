// tools/shapes.h -- the grammar of shapes: which signatures a command speaks
// of.
//
//   --shapes 'x=1x3x48x{32..640}'           by input; several with spaces
//   --dims 'batch={1,2,8} seq={8..256/8}'   by symbol of the model
//
// A size is a number, or a set in braces: numbers and ranges, both ends
// included, a range perhaps with a step. A symbol has one size in a signature,
// whatever inputs use it and whichever option gave it. A number alone behind
// `=` makes a vector, nothing at all a scalar.
#ifndef LIMBER_TOOLS_SHAPES_H
#define LIMBER_TOOLS_SHAPES_H

#include "cli.h"

typedef struct shapes shapes;

typedef struct shapes_of {
  const limber_value_info *inputs;  // of the model; n of them
  size_t n;
  // By input: contents whose shape it has, or NULL. NULL: there are none.
  const limber_tensor *const *fixed;
  const char *shapes, *dims;  // texts of the options, or NULL
} shapes_of;

// The inputs are borrowed for as long as *out is used; NULL on failure.
bool shapes_new(const shapes_of *of, shapes **out, problem *p);
void shapes_free(shapes *s);  // NULL is fine

// How many signatures there are.
uint64_t shapes_count(const shapes *s);

// Keeps `n` of them: all in order if there are no more, else drawn at random,
// each at most once. Equal seeds draw the same.
bool shapes_draw(shapes *s, uint64_t n, uint64_t seed, problem *p);
uint64_t shapes_drawn(const shapes *s);

// Names, dtypes and dims of all inputs in drawn signature i; data is not
// touched.
void shapes_get(const shapes *s, uint64_t i, limber_tensor *inputs);

#endif
