// tools/element.h -- tensors element by element: dtype names, values,
// summaries and comparison. All tensors are dense.
#ifndef LIMBER_TOOLS_ELEMENT_H
#define LIMBER_TOOLS_ELEMENT_H

#include "cli.h"

// Return the short name of a dtype, "f32", and the dtype of a short name of n
// characters, or LIMBER_NONE if it is unknown.
const char *dtype_short(limber_dtype dtype);
limber_dtype dtype_from_short(const char *text, size_t n);
bool dtype_is_float(limber_dtype dtype);

// Computes the number of elements. Returns false if a dim is negative or the
// number does not fit.
bool count_of(int rank, const int64_t *dims, int64_t *out);
// Sets `bytes` and allocates `data`, uninitialised. The caller frees it.
bool tensor_alloc(limber_tensor *t, problem *p);

double element_get(const limber_tensor *t, int64_t i);
// Sets an integer element from `whole`, any other from `real`.
void element_set(limber_tensor *t, int64_t i, double real, int64_t whole);
// Prints an element into buf, exactly if it is an integer; returns buf.
const char *element_print(const limber_tensor *t, int64_t i, char *buf,
                          size_t cap);

// Prints a type such as "float32[1,3]" into buf; returns buf.
const char *type_print(const limber_tensor *t, char *buf, size_t cap);

typedef struct summary {
  int64_t count, n_nan;
  double min, max, mean;  // without NaNs; 0 if there are no other elements
} summary;
summary summarize(const limber_tensor *t);

// True if |a-b| <= 1e-4 + 1e-3 |b| for all floats, where two NaNs are equal,
// and all integers are equal. If not, `p` names the first difference.
bool agree(const limber_tensor *a, const limber_tensor *b, problem *p);

#endif
