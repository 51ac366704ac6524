// plan/plan.h -- one region of a graph bound to one signature.
//
// Terms. A *plan* covers one stage: the part of the region whose shapes are all
// known at planning time. Where data decides what comes next (a shape, a
// branch), the stage ends with *stage results* that are read after it has run:
// the dims of outputs that kernels sized, and the contents of tensors on which
// shapes or branches depend. The next stage is a plan of its own, built from
// its parent and those results.
//
// (1) A plan is refcounted and immutable except for `serial`, `complete` and
//     `profiled_runs`; any thread may run it. It retains its program, and its
//     parent, whose arena holds data that the child still refers to.
// (2) Values that the signature alone determines are computed while planning
//     (by the reference kernels, at most LB_MAX_KNOWN elements) and are
//     constants of the plan: shape arithmetic never becomes a step.
// (3) An If never becomes a step: its condition is known when it is planned,
//     and the nodes of the taken branch are planned in its place.
// (4) A partition's launch is followed by its cover, unless the built-in pack
//     has its kernel: launches of pack kernels for pieces of the partition, and
//     calls of reference kernels (cover.c). The partition's inputs stay alive
//     until the whole cover has run.
// (5) Values share a buffer if one is a view of the other, or is a slice of a
//     Concat's result. User inputs and constants are never written.
// (6) Planning is pure: it uses no threads and no clock, and changes no state
//     other than the plan. (Slots of the kernels it uses are the exception: see
//     variants.h.)
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
  LB_STORAGE_ARENA,    // at `offset` in the run's arena
  LB_STORAGE_DYNAMIC,  // index: a dynamic buffer, sized by its kernel at run
                       // time
} lb_storage;

// The operand is not a value of the graph: packed weights, tables, or scratch
// memory of a kernel.
#define LB_NO_VALUE UINT32_MAX

typedef struct lb_step_operand {
  const lb_tensor *tensor;  // data is set by the run, except for constants;
                            // never NULL: an absent operand has dtype LB_NONE
  lb_storage storage;
  uint32_t index;
  int64_t offset;  // bytes; until memory is placed, a virtual offset (memory.h)
  uint32_t value;  // id in the graph, or LB_NO_VALUE
} lb_step_operand;

typedef enum lb_step_kind {
  LB_STEP_CALL,    // of a reference kernel
  LB_STEP_COPY,    // in[0] to out[0], elements unchanged
  LB_STEP_LOOP,    // Loop or Scan: the body is planned at run time
  LB_STEP_LAUNCH,  // a partition's kernel. If the kernel is available, the
                   // `skip` steps that follow (its cover) are skipped
} lb_step_kind;

enum {           // base numbers in an lb_address
  LB_BASE_NONE,  // the offset is the address itself
  LB_BASE_ARENA,
  LB_BASE_FIRST,  // first of the region's parameters; then come its results and
                  // the dynamic buffers
};

typedef struct lb_step {
  lb_step_kind kind;
  lb_reason reason;           // CALL, COPY: why it is not a launch
  const lb_node *node;        // borrowed from the graph; COPY: the node whose
                              // elements it moves, or NULL
  lb_step_operand *in, *out;  // LAUNCH: none, operands are in the launch
  uint32_t n_in, n_out;
  uint32_t skip;       // LAUNCH: steps of the cover that follow
  int64_t iterations;  // LAUNCH: 0, or a sequence: the first `group_size`
                       // launches run this many times, one after the other,
                       // then the next `group_size`
  uint32_t group_size;
  int max_parallel_threads;  // LAUNCH: the groups run concurrently if the pool
                             // has at most this many threads; 0: never
  lb_launch *launch;         // LAUNCH; else NULL
} lb_step;

// Data that is read when a stage has run, and from which the next one is
// planned. The order is that of lb_plan.stage_results.
typedef struct lb_stage_result {
  enum { LB_STAGE_RESULT_DIMS, LB_STAGE_RESULT_CONTENTS } kind;
  uint32_t dynamic_buffer;  // DIMS: the dynamic buffer whose rank and dims are
                            // read
  lb_step_operand source;   // CONTENTS: the tensor that is read
} lb_stage_result;

// A region result that the stage writes. It is bound to the caller's memory
// before the stage runs.
typedef struct lb_bind {
  uint32_t result;
  lb_tensor tensor;  // dense, or with the strides that the caller requested;
                     // data is NULL
} lb_bind;

// What the caller requests of a region result.
typedef struct lb_want {
  bool wanted;
  int rank;                // number of `strides`
  const int64_t *strides;  // of the caller's buffer, in elements; NULL: dense
} lb_want;

// A part of the run's arena without a live value, before step `step`. It is
// overwritten then if memory is checked (LB_CHECK_POISON).
typedef struct lb_wipe {
  uint32_t step;  // in the stage
  bool ended;     // a value ended there; else one begins, in this step
  size_t offset, size;
} lb_wipe;

// A copy of constants of a plan in device memory.
typedef struct lb_plan_copy {
  struct lb_plan_copy *next;
  const void *host;
  size_t bytes;
  void *data;  // owned
} lb_plan_copy;

typedef struct lb_plan {
  lb_ref ref;
  lb_arena arena;
  lb_arena state;          // planner state for the next stage; see `remaining`
  lb_program *program;     // retained
  struct lb_plan *parent;  // retained; NULL: the first stage
  uint64_t serial;         // set by the cache that holds the plan
  lb_step *steps;
  lb_bind *binds;
  lb_stage_result *stage_results;  // none: the last stage
  uint32_t n_steps, n_binds, n_stage_results;
  uint32_t first_step;    // steps of earlier stages
  lb_disposition *nodes;  // owned; dispositions of the nodes of the region and
                          // of nested regions, up to and including this stage;
                          // by node id minus first_node
  uint32_t first_node, n_nodes;
  uint32_t n_dynamic;     // dynamic buffers up to and including this stage
  uint32_t max_operands;  // max over all steps
  size_t arena_bytes;     // size of the run's arena, with live values of parent
                          // stages
  lb_plan_copy *copies;   // none if the device shares host memory
  lb_wipe *wipes;         // by step; none unless memory is checked
  uint32_t n_wipes;
  struct lb_planner *remaining;  // planner with the nodes still to plan; NULL:
                                 // the last stage
  uint32_t n_left;               // its nodes that are known to be needed
  // The slots' review count at which every step had its best kernel; 0: not
  // yet. Set by the session that runs the plan, like `serial`.
  atomic_uint complete;
  atomic_uint profiled_runs;  // runs that were profiled step by step; set by
                              // the session
} lb_plan;

// Planning scratch memory for one plan at a time. It is reused for the next
// plan, because faulting in new pages costs more than planning.
typedef struct lb_plan_workspace {
  lb_arena state, scratch;
  // Plans are built for load-time warm-up, at guessed sizes: slots do not count
  // as used, and kernels are requested only if they do not depend on the guess
  // (plan/variants.h).
  bool in_warmup;
} lb_plan_workspace;
void lb_plan_workspace_init(lb_plan_workspace *d);
void lb_plan_workspace_fini(lb_plan_workspace *d);  // frees all memory; may be
                                                    // used again
size_t lb_plan_workspace_bytes(const lb_plan_workspace *d);

// Plans the first stage. `inputs` has region->n_params tensors with any
// strides; data is read only of those for which lb_program_reads is true.
// contents[i] is what a guard has found out about input i; `contents` may be
// NULL. want[i] belongs to result i. Fails with LB_INVALID if requested strides
// do not fit the result's dims.
lb_status lb_plan_first(lb_program *prog, const lb_region *region,
                        const lb_tensor *inputs, const lb_content *contents,
                        const lb_want *want, lb_plan_workspace *workspace,
                        lb_plan **out);

// Plans the next stage. stage_results[i] is the tensor read for
// parent->stage_results[i]. DIMS: rank and dims; CONTENTS: dense data, which is
// copied.
lb_status lb_plan_next(lb_plan *parent, const lb_tensor *stage_results,
                       lb_plan_workspace *workspace, lb_plan **out);

lb_plan *lb_plan_retain(lb_plan *p);
void lb_plan_release(lb_plan *p);  // NULL is fine
size_t lb_plan_bytes(const lb_plan *p);

// The disposition of a node of the plan's region or of a region nested in it.
static inline const lb_disposition *lb_plan_node(const lb_plan *p,
                                                 const lb_node *n) {
  return &p->nodes[n->id - p->first_node];
}

#endif
