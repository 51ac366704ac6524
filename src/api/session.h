// api/session.h -- a loaded model, as the public functions see it.
#ifndef LB_API_SESSION_H
#define LB_API_SESSION_H

#include <stdatomic.h>

#include "api/runtime.h"
#include "base/map.h"
#include "onnx/onnx.h"
#include "session/session.h"

// The inputs, or the outputs.
typedef struct lb_ports {
  limber_value_info *infos;  // in the session's arena
  size_t n;
  lb_map by_name;  // to an element of infos
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
  // One per output: its declared dims are still to be compared with those of
  // runs. Cleared by the first that differs, so that one warning is enough.
  atomic_bool *doubtful;
};

// limber_session_run; `how` says what its options do.
lb_status lb_api_run(limber_session *s, const limber_tensor *inputs,
                     size_t n_inputs, limber_tensor *outputs, size_t n_outputs,
                     const lb_run_how *how);

// limber_session_plan_signature; `out` may be NULL.
lb_status lb_api_plan(limber_session *s, const limber_signature *what,
                      limber_plan_info *out);

// What a run's options say; `options` may be NULL. *bound is where how->bound
// points. Time counts from here.
lb_status lb_how_read(const limber_run_options *options, lb_run_limits *bound,
                      lb_run_how *how);

// Whether a caller's tensor says nothing that this version does not know.
lb_status lb_api_check(const limber_tensor *t);
// A caller's input as the session takes it, checked; `planning`: without data.
lb_status lb_api_take(const limber_tensor *t, bool planning, lb_tensor *out);
// Memory and strides that a caller gives for a result.
lb_status lb_api_take_output(const limber_tensor *t, lb_output *out);
// A result as the caller gets it.
void lb_api_give(limber_runtime *runtime, const lb_output *from,
                 limber_tensor *to);

// Compares results with what the model declares of them; a difference is a
// warning. `before` compares what was inferred, `after` what came out of a run.
lb_status lb_declared_before(limber_session *s);
void lb_declared_after(limber_session *s, const lb_output *outputs);

#endif
