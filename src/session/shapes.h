// session/shapes.h -- signatures in a text file.
//
//   # limber-shapes 1
//   12 x=float32[1,3,48,320]
//   3 x=float32[1,3,48,64] size=int64[2]{24,32} > boxes
//
// Each line is one signature: its count, then the inputs, with their contents
// where those decide shapes, then the wanted outputs if not all were wanted. In
// names a blank, a control character, '%', '=' and '>' are written as '%' and
// two hexadecimal digits. Empty lines and lines that start with '#' are
// ignored, except the first, which identifies the format. A number that is not
// an integer is written as an integer times a power of two: 3p-1 is 1.5.
#ifndef LB_SESSION_SHAPES_H
#define LB_SESSION_SHAPES_H

#include "base/arena.h"
#include "base/file.h"
#include "base/strbuf.h"
#include "base/tensor.h"

typedef struct lb_recorded_signature {
  uint64_t count;
  const char **names;  // of the inputs
  lb_tensor *inputs;   // dense; data NULL: the contents decide no shape
  uint32_t n_inputs;
  const char **outputs;  // NULL: all
  uint32_t n_outputs;
} lb_recorded_signature;

typedef struct lb_shapes {  // {0} is fine
  lb_arena arena;           // holds everything below
  lb_recorded_signature *list;
  size_t n;
} lb_shapes;

// LB_INVALID names the line and the error. Call lb_shapes_fini on failure too.
lb_status lb_shapes_parse(lb_span text, lb_shapes *out);
lb_status lb_shapes_read(const char *path, lb_shapes *out);
void lb_shapes_fini(lb_shapes *s);

// The first line, and the line of one signature.
void lb_shapes_print_header(lb_strbuf *out);
void lb_shapes_print(const lb_recorded_signature *s, lb_strbuf *out);

#endif
