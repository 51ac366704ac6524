// session/shapes.h -- signatures in a file that people can read.
//
//   # limber-shapes 1
//   12 x=float32[1,3,48,320]
//   3 x=float32[1,3,48,64] size=int64[2]{24,32} > boxes
//
// A line is one signature: how often it was seen, then the inputs, with their
// contents where those decide shapes, then the outputs that were asked for if
// not all were. In names a blank, a control character, '%', '=' and '>' are a
// '%' and two hexadecimal digits. Empty lines and those with '#' are passed
// over, but for the first, which says what the file is. A number that is no
// integer is one times a power of two, 3p-1 for 1.5.
#ifndef LB_SESSION_SHAPES_H
#define LB_SESSION_SHAPES_H

#include "base/arena.h"
#include "base/file.h"
#include "base/strbuf.h"
#include "base/tensor.h"

typedef struct lb_recorded_signature {
  uint64_t count;
  const char **names;  // of the inputs
  lb_tensor *inputs;   // dense; data NULL: contents decide nothing
  uint32_t n_inputs;
  const char **outputs;  // NULL: all
  uint32_t n_outputs;
} lb_recorded_signature;

typedef struct lb_shapes {  // {0} is fine
  lb_arena arena;           // of all that it holds
  lb_recorded_signature *list;
  size_t n;
} lb_shapes;

// LB_INVALID names the line and what is wrong with it. `out` is to be finished
// on failure too.
lb_status lb_shapes_parse(lb_span text, lb_shapes *out);
lb_status lb_shapes_read(const char *path, lb_shapes *out);
void lb_shapes_fini(lb_shapes *s);

// The first line, and the line of one signature.
void lb_shapes_print_head(lb_strbuf *out);
void lb_shapes_print(const lb_recorded_signature *s, lb_strbuf *out);

#endif
