// tools/element.h -- tensors element by element: names of dtypes, values,
// summaries, comparison. Tensors are the commands' own or a run's results;
// their elements are dense.
#ifndef LIMBER_TOOLS_ELEMENT_H
#define LIMBER_TOOLS_ELEMENT_H

#include "cli.h"

// "f32"; and back (LIMBER_NONE if unknown), where the text need not end.
const char *dtype_short(limber_dtype dtype);
limber_dtype dtype_from_short(const char *text, size_t n);
bool dtype_is_float(limber_dtype dtype);

// Elements of dims, false if negative or too many.
bool count_of(int rank, const int64_t *dims, int64_t *out);
// Sets bytes and allocates data (not cleared; freed with free).
bool tensor_alloc(limber_tensor *t, problem *p);

double element_get(const limber_tensor *t, int64_t i);
// Integers are set from `whole`, others from `real`.
void element_set(limber_tensor *t, int64_t i, double real, int64_t whole);
// Exact for integers; into buf, returned.
const char *element_print(const limber_tensor *t, int64_t i, char *buf,
                          size_t cap);

// "float32[1,3]"; into buf, returned.
const char *type_print(const limber_tensor *t, char *buf, size_t cap);

typedef struct summary {
  int64_t count, not_numbers;
  double min, max, mean;  // of the numbers; 0 if there is none
} summary;
summary summarize(const limber_tensor *t);

// |a-b| <= 1e-4 + 1e-3 |b|, where two NaN are equal; integers exactly. False
// with the first element that differs in `p`.
bool agree(const limber_tensor *a, const limber_tensor *b, problem *p);

#endif
