// onnx/reader.h -- shared by the files that read protobuf messages.
#ifndef LB_ONNX_READER_H
#define LB_ONNX_READER_H

#include "onnx/proto.h"

typedef struct lb_reader {
  lb_arena *scratch;
  lb_arena *persistent;  // for attribute payloads
  int depth;             // nesting of subgraphs
} lb_reader;

// Reads a name. Zero bytes are refused.
lb_status lb_read_str(const lb_wire *w, const lb_wire_field *f, lb_pb_str *out);
lb_status lb_read_int(const lb_wire *w, const lb_wire_field *f, int64_t *out);
lb_status lb_read_graph(lb_reader *r, lb_wire w, lb_pb_graph *out);
lb_status lb_read_attr(lb_reader *r, lb_wire w, lb_pb_attr *out);
lb_status lb_read_tensor(lb_wire w, bool sparse, lb_pb_tensor *out);

#endif
