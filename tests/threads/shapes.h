// threads/shapes.h -- Inputs for the programs in this directory.
#ifndef THREADS_SHAPES_H
#define THREADS_SHAPES_H

#include <limber/limber.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct shape {
  limber_tensor in,
      out;  // the input, and the output of a run without other threads
} shape;

// Parses "1x3x48x32" into a tensor of pseudo-random numbers, equal each time.
static inline int parse(const char *text, limber_tensor *t) {
  size_t count = 1;
  *t = (limber_tensor){.dtype = LIMBER_F32};
  for (char *end; *text && t->rank < LIMBER_MAX_RANK; text = end) {
    t->dims[t->rank++] = strtoll(text, &end, 10);
    count *= (size_t)t->dims[t->rank - 1];
    if (*end == 'x') end++;
  }
  float *x = malloc((count ? count : 1) * sizeof *x);
  unsigned seed = (unsigned)count;
  for (size_t i = 0; x && i < count; i++)
    x[i] = (float)rand_r(&seed) / (float)RAND_MAX;
  t->data = x;
  return x != NULL;
}

static inline int run(limber_session *s, const limber_tensor *in,
                      limber_tensor *out) {
  *out = (limber_tensor){0};
  if (limber_session_run(s, in, 1, out, 1, NULL) == LIMBER_OK) return 1;
  fprintf(stderr, "%s\n", limber_last_error());
  return 0;
}

#endif
