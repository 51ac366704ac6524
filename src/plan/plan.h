// plan/plan.h -- one region of a graph bound to one signature.
//
// Terms. A *plan* covers one stage: a stretch of the region whose shapes are
// all known. Where data decides what comes next (a shape, a branch), the stage
// ends with *facts* to be read from the run: dims that kernels decided and
// contents that shapes or branches depend on. The next stage is a plan of its
// own, built from its parent and those facts.
//
// (1) A plan is immutable but for `serial`, `complete` and `turns`, and
//     refcounted; any thread may run it. It retains its program, and its
//     parent, whose arena holds what the child still refers to.
// (2) What can be computed from the signature alone is computed while planning
//     (by the host kernels, on at most LB_MAX_KNOWN elements) and is a constant
//     of the plan: shape arithmetic never becomes a step.
// (3) If disappears: its condition is known when it is planned, and the nodes
//     of the taken branch are planned in its place.
// (4) A partition's launch is followed by its cover, unless the pack has its
//     kernel: pieces of it as launches of the pack's, and calls (cover.c). What
//     the partition reads stays alive until all of it has run.
// (5) Values share buffers where one is a view of the other, or part of a
//     Concat's result. User inputs and constants are never written.
// (6) Building is pure: no threads, no clocks, no state but the result.
#ifndef LB_PLAN_PLAN_H
#define LB_PLAN_PLAN_H

#include "base/arena.h"
#include "base/ref.h"
#include "device/launch.h"
#include "graph/graph.h"
#include "plan/disposition.h"
#include "plan/program.h"

typedef enum lb_storage {
  LB_STORAGE_NONE,     // absent, or a constant: tensor.data is set
  LB_STORAGE_INPUT,    // index: parameter of the region
  LB_STORAGE_OUTPUT,   // index: result of the region
  LB_STORAGE_ARENA,    // at offset in the run's arena
  LB_STORAGE_DYNAMIC,  // index: a buffer of its own, sized by the kernel
} lb_storage;

// Of an operand that is no value of the graph: packed weights, tables, memory
// for a kernel's own use.
#define LB_NO_VALUE UINT32_MAX

typedef struct lb_step_operand {
  const lb_tensor *tensor;  // data set by the run, except for constants; never
                            // NULL: what is absent has dtype LB_NONE
  lb_storage place;
  uint32_t index;
  int64_t offset;  // bytes
  uint32_t value;  // its id in the graph, or LB_NO_VALUE
} lb_step_operand;

typedef enum lb_step_kind {
  LB_STEP_CALL,    // a kernel
  LB_STEP_COPY,    // in[0] to out[0], elements unchanged
  LB_STEP_LOOP,    // Loop and Scan: the body is planned at run time
  LB_STEP_LAUNCH,  // a partition's kernel if there is one: then the steps that
                   // cover it, `skip` of them, are passed over
} lb_step_kind;

enum {           // numbers of bases
  LB_BASE_NONE,  // the offset is the address itself
  LB_BASE_ARENA,
  LB_BASE_FIRST,  // of the region's parameters, then of its results, then of
                  // the own buffers
};

typedef struct lb_step {
  lb_step_kind kind;
  lb_reason reason;           // CALL, COPY: why it is no launch
  const lb_node *node;        // borrowed from the graph; NULL for a copy
  lb_step_operand *in, *out;  // LAUNCH: none, the launch has them
  uint32_t n_in, n_out;
  uint32_t skip;  // LAUNCH: steps of the cover that follow
  int64_t turns;  // LAUNCH: 0, or how often launches run, one after the
                  // other: the first `each` of them, then the next
  uint32_t each;
  int apart;          // LAUNCH: these groups run at the same time where no
                      // more threads than this take part; 0: never
  lb_launch *launch;  // LAUNCH: else NULL
} lb_step;

// What a finished stage tells about the next one, in this order.
typedef struct lb_stage_result {
  enum { LB_STAGE_RESULT_DIMS, LB_STAGE_RESULT_CONTENTS } kind;
  uint32_t own;            // DIMS: the buffer whose rank and dims are read
  lb_step_operand source;  // CONTENTS: the tensor that is read
} lb_stage_result;

// A result that the stage writes: bound to the caller's memory before it runs.
typedef struct lb_bind {
  uint32_t result;
  lb_tensor tensor;  // dense, or with the strides that were asked; data NULL
} lb_bind;

// What a caller asks of a result.
typedef struct lb_want {
  bool wanted;
  int rank;                // of `strides`
  const int64_t *strides;  // of the window that it is written to, in elements;
                           // NULL: it is dense
} lb_want;

// Memory of a device that has a copy of constants of a plan.
typedef struct lb_plan_copy {
  struct lb_plan_copy *next;
  const void *host;
  size_t bytes;
  void *data;  // owned
} lb_plan_copy;

typedef struct lb_plan {
  lb_ref ref;
  lb_arena arena;
  lb_arena state;          // of `rest`
  lb_program *program;     // retained
  struct lb_plan *parent;  // retained; NULL: the first stage
  uint64_t serial;         // given by whoever caches it
  lb_step *steps;
  lb_bind *binds;
  lb_stage_result *facts;  // none: the last stage
  uint32_t n_steps, n_binds, n_facts;
  uint32_t first_step;    // steps of earlier stages
  lb_disposition *nodes;  // owned; of the region and those inside it, up to and
                          // including this stage; by id, from first_node on
  uint32_t first_node, n_nodes;
  uint32_t n_own;         // own buffers up to and including this stage
  uint32_t max_operands;  // of one step
  size_t arena_bytes;     // of the run's arena, live values of parents included
  lb_plan_copy *copies;   // none for a device that shares memory
  struct lb_planner *rest;  // what is still to plan; NULL: the last stage
  uint32_t n_left;          // nodes of it that are known to be needed
  // The slots' reviews when no step lacked its best kernel; 0: not yet. For
  // the one who runs it, as is `serial`.
  atomic_uint complete;
  atomic_uint turns;  // runs that looked at steps; likewise
} lb_plan;

// What plans are made on, one at a time: working memory that one plan leaves to
// the next, since pages that are met for the first time take longer than the
// work.
typedef struct lb_plan_workspace {
  lb_arena state, scratch;
  // Plans are made to get ready, at sizes that are guessed: slots are not
  // counted as used, and wanted as far as the guess does not choose them (see
  // plan/variants.h).
  bool in_warmup;
} lb_plan_workspace;
void lb_plan_workspace_init(lb_plan_workspace *d);
void lb_plan_workspace_fini(lb_plan_workspace *d);  // empty, and ready for more
size_t lb_plan_workspace_bytes(const lb_plan_workspace *d);

// The first stage. `inputs` has region->n_params tensors; data is read only of
// those that lb_program_reads. Strides may be any. want[i] is about result i;
// strides that do not suit its dims are LB_INVALID.
lb_status lb_plan_first(lb_program *prog, const lb_region *region,
                        const lb_tensor *inputs, const lb_want *want,
                        lb_plan_workspace *workspace, lb_plan **out);

// The next stage; facts[i] is what parent->facts[i] gave: DIMS: rank and dims;
// CONTENTS: dense data, which is copied.
lb_status lb_plan_next(lb_plan *parent, const lb_tensor *facts,
                       lb_plan_workspace *workspace, lb_plan **out);

lb_plan *lb_plan_retain(lb_plan *p);
void lb_plan_release(lb_plan *p);  // NULL is fine
size_t lb_plan_bytes(const lb_plan *p);

// Of a node of the plan's region, or of one inside it.
static inline const lb_disposition *lb_plan_node(const lb_plan *p,
                                                 const lb_node *n) {
  return &p->nodes[n->id - p->first_node];
}

#endif
