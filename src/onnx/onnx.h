// onnx/onnx.h -- ONNX bytes to a graph. The only room that knows the wire
// format.
//
// Weights are not copied: constants point into the mapped file or the
// caller's buffer, which lb_model keeps or borrows.
#ifndef LB_ONNX_ONNX_H
#define LB_ONNX_ONNX_H

#include "base/file.h"
#include "base/log.h"
#include "graph/graph.h"

typedef struct lb_model_prop {
  const char *key, *value;
} lb_model_prop;

// What the model says of one of its outputs, to be compared with what is
// inferred: files are often wrong here.
typedef struct lb_declared {
  lb_dtype dtype;             // LB_NONE: not said
  int rank;                   // -1: not said
  int64_t dims[LB_MAX_RANK];  // -1: not said, or a name
} lb_declared;

typedef struct lb_model {
  lb_graph *graph;  // owned
  lb_file *files;   // owned mappings: the model, then its external data
  uint32_t n_files;
  int64_t ir_version;
  int64_t opset;  // of the default domain
  int64_t model_version;
  const char *producer_name, *producer_version, *domain, *description,
      *graph_name;  // never NULL; in the graph's arena
  lb_model_prop *props;
  uint32_t n_props;
  lb_declared *outputs;  // one per result of the main region
  int64_t weight_bytes;  // of all constants
} lb_model;

typedef struct lb_onnx_options {
  const lb_log *log;  // warnings; may be NULL
  bool copy_weights;  // own the bytes, so the file may change afterwards
} lb_onnx_options;

// On failure *out is all zero. Every unknown operator is listed in one
// LB_UNSUPPORTED error, with domain, opset, count and the first node's name.
lb_status lb_onnx_load(const char *path, const lb_onnx_options *o,
                       lb_model *out);
// `bytes` must stay until lb_model_fini (unless copy_weights). No external
// data, unless `folder` says where it lies (NULL: refused).
lb_status lb_onnx_parse(lb_span bytes, const char *folder,
                        const lb_onnx_options *o, lb_model *out);
void lb_model_fini(lb_model *m);

// -- for people --------------------------------------------------------------

typedef struct lb_op_use {
  const char *domain, *op_type;  // domain "" is ONNX's own
  int64_t opset;                 // of the domain; 0: not imported
  uint32_t count;                // nodes, in bodies too
  bool supported;
  const char *first;  // name of the first such node
} lb_op_use;

// The operators of a model that need not load. A function that is called counts
// once, however often it is called, and the calls do not count.
typedef struct lb_survey {
  lb_arena arena;  // owns what follows
  lb_op_use *ops;  // in order of first use
  uint32_t n_ops, n_nodes;
  int64_t ir_version, opset;
  const char *producer_name, *producer_version;
} lb_survey;

// On failure (not a sound ONNX model) *out is all zero.
lb_status lb_onnx_survey(lb_span bytes, lb_survey *out);
lb_status lb_onnx_survey_file(const char *path, lb_survey *out);
void lb_survey_fini(lb_survey *s);

#endif
