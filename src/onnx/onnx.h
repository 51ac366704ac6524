// onnx/onnx.h -- imports an ONNX model as a graph. The only module that knows
// the wire format.
//
// Weights are not copied: constants point into the mapped file, which lb_model
// owns, or into the caller's buffer, which it borrows.
#ifndef LB_ONNX_ONNX_H
#define LB_ONNX_ONNX_H

#include "base/file.h"
#include "base/log.h"
#include "graph/graph.h"

typedef struct lb_model_prop {
  const char *key, *value;
} lb_model_prop;

// The type that the model declares for one of its outputs, to be compared with
// the inferred one: declarations are often wrong.
typedef struct lb_declared {
  lb_dtype dtype;             // LB_NONE: not declared
  int rank;                   // -1: not declared
  int64_t dims[LB_MAX_RANK];  // -1: not declared, or a symbol
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
  bool copy_weights;  // copy them, so that the file may change afterwards
} lb_onnx_options;

// On failure *out is all zero. All unknown operators are listed in one
// LB_UNSUPPORTED error, with domain, opset, count and the first node's name.
lb_status lb_onnx_load(const char *path, const lb_onnx_options *o,
                       lb_model *out);
// `bytes` must stay valid until lb_model_fini (unless copy_weights). External
// data is read from `directory`; if that is NULL, it is refused.
lb_status lb_onnx_parse(lb_span bytes, const char *directory,
                        const lb_onnx_options *o, lb_model *out);
void lb_model_fini(lb_model *m);

// -- survey of operators -----------------------------------------------------

typedef struct lb_op_use {
  const char *domain, *op_type;  // domain "": ai.onnx
  int64_t opset;                 // of the domain; 0: not imported
  uint32_t count;                // nodes, including those in bodies
  bool supported;
  const char *first;  // name of the first such node
} lb_op_use;

// The operators of a model, which need not be loadable. The body of a called
// function counts once, however often it is called; calls are not counted.
typedef struct lb_survey {
  lb_arena arena;  // owns all that follows
  lb_op_use *ops;  // in order of first use
  uint32_t n_ops, n_nodes;
  int64_t ir_version, opset;
  const char *producer_name, *producer_version;
} lb_survey;

// On failure (not a valid ONNX model) *out is all zero.
lb_status lb_onnx_survey(lb_span bytes, lb_survey *out);
lb_status lb_onnx_survey_file(const char *path, lb_survey *out);
void lb_survey_fini(lb_survey *s);

#endif
