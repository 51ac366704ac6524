// api/session.h -- a loaded model as the public functions see it, and the
// conversion of tensors between the public and the internal structs.
#ifndef LB_API_SESSION_H
#define LB_API_SESSION_H

#include <stdatomic.h>

#include "api/runtime.h"
#include "base/map.h"
#include "onnx/onnx.h"
#include "session/session.h"

// The inputs or the outputs of a model.
typedef struct lb_ports {
  limber_value_info *infos;  // in the session's arena
  size_t n;
  lb_map by_name;  // name -> element of infos
} lb_ports;

struct limber_session {
  limber_runtime *runtime;  // borrowed
  lb_model model;
  lb_session *session;  // owned
  lb_prefer prefer;
  lb_policy policy;
  lb_arena arena;
  lb_ports inputs, outputs;
  limber_property *properties;  // in the arena
  // One flag per output, in the arena: whether runs compare their result with
  // the declared dims. The first difference clears it, so that only one run
  // warns.
  atomic_bool *check_declared;
};

// Implements limber_session_run; `how` holds the internal run options.
lb_status lb_api_run(limber_session *s, const limber_tensor *inputs,
                     size_t n_inputs, limber_tensor *outputs, size_t n_outputs,
                     const lb_run_how *how);

// Implements limber_session_plan_signature; `out` may be NULL.
lb_status lb_api_plan(limber_session *s, const limber_signature *what,
                      limber_plan_info *out);

// Converts run options. how->limits points to *limits, or is NULL if `options`
// is. The timeout counts from this call.
lb_status lb_run_options_read(const limber_run_options *options,
                              lb_run_limits *limits, lb_run_how *how);

// Fails if a reserved field of the caller's tensor is set.
lb_status lb_api_check(const limber_tensor *t);
// Checks and converts a caller's input. `planning`: data may be missing.
lb_status lb_api_read_input(const limber_tensor *t, bool planning,
                            lb_tensor *out);
// Converts the memory and strides that a caller supplies for a result.
lb_status lb_api_read_output(const limber_tensor *t, lb_output *out);
// Fills in the caller's tensor: dtype, dims and memory of a result. No element
// is copied.
void lb_api_write_output(limber_runtime *runtime, const lb_output *from,
                         limber_tensor *to);

// These compare the outputs with the types that the model declares for them; a
// difference causes a warning. The first compares inferred types when the model
// is loaded, the second compares the dims of a run's results.
lb_status lb_declared_check_model(limber_session *s);
void lb_declared_check_run(limber_session *s, const lb_output *outputs);

#endif
