// plan/launch.h -- a partition as one launch.
//
// launch.c leads a partition from the graph to its launch and its cover;
// recipe.c finds the slot and all that spec and facts decide; variants.c wants
// it; prepare.c makes the call, with everything decided but the addresses of a
// run; repeat.c makes it again for a twin; recurrent.c makes those that run in
// turns.
#ifndef LB_PLAN_LAUNCH_H
#define LB_PLAN_LAUNCH_H

#include "device/device.h"
#include "plan/values.h"

typedef struct lb_cached_launch
    lb_cached_launch;  // launches of a partition: see repeat.c

typedef struct lb_launch_states {
  const lb_cached_launch **made;  // by group of twins, in this stage; or NULL
  // Of the partition being planned: the dims of what its first nodes make, all
  // of them once it is bound. NULL: dims are as expressions say.
  const lb_partition *part;
  const lb_tensor *dims;
  uint32_t n_dims;
  bool covers;  // its launch is emitted, and is what became of its members
} lb_launch_states;

// -- launch.c

// Plans the members of a partition, whose last node has been reached.
lb_status lb_planner_partition(lb_planner *p, const lb_partition *part);

// Adds the step of a launch, and that it is what became of the members.
lb_status lb_planner_push_launch(lb_planner *p, const lb_partition *part,
                                 lb_launch *launch);
// Adds a step for all zones of what `b` binds, which is used up.
struct lb_launch_template;
lb_status lb_planner_add_launch(lb_planner *p, const lb_partition *part,
                                lb_binding *b,
                                const struct lb_launch_template *r);

// The tensor of a member's value or of what it reads. A lb_tensor_fn: the
// planner is `user`.
lb_status lb_planner_tensor(void *user, const lb_value *v, lb_tensor *out);

// -- recipe.c

// All of a launch that spec and facts decide.
typedef struct lb_launch_template_operand {
  uint8_t size;     // bytes of an element
  uint8_t panels;   // columns of one, which the kernel walks by itself; or 0
  bool rows, cols;  // it is walked along
} lb_launch_template_operand;

typedef struct lb_launch_template {
  lb_slot *slot;
  lb_split_basis basis;
  lb_sargs cells;
  uint8_t n_operands, n_dims, n_scalars;
  bool taps;
  lb_launch_template_operand operands[LB_SPEC_MAX_OUT + LB_SPEC_MAX_IN];
  // Where the pieces of the partition's cover begin: bit i stands for node i.
  // 0: not decided yet. See lb_planner_find_pieces.
  _Atomic uint64_t pieces;
} lb_launch_template;
void lb_launch_template_init(lb_launch_template *r, const lb_device *d,
                             const lb_spec *s, lb_slot *slot);

// The recipe of a binding, whose slot exists from now on and is not wanted for
// that: the one that the memo keeps, or else *made.
lb_status lb_planner_launch_template(lb_planner *p, const lb_binding *b,
                                     const lb_launch_template **known,
                                     lb_launch_template *made);

// -- prepare.c

// Where the values of operands begin; all of them have states.
lb_status lb_planner_addresses(lb_planner *p, const lb_partition *part,
                               const lb_binding *b, lb_address *out);
// The same of one value; NULL: the partition's weights.
lb_status lb_planner_value_address(lb_planner *p, const lb_partition *part,
                                   const lb_value *v, lb_address *out);
// The first byte of an operand.
lb_status lb_planner_address(lb_planner *p, const lb_step_operand *at,
                             lb_address *out);

// The call of a kernel on what `b` binds, whose values begin `at`.
lb_status lb_planner_prepare(lb_planner *p, const lb_launch_template *r,
                             const lb_binding *b, const lb_address *at,
                             lb_launch **out);
// The same of another zone of what `first` begins; `like` is that of one with
// the same axis.
lb_status lb_planner_prepare_zone(lb_planner *p, const lb_launch_template *r,
                                  const lb_binding *b, const lb_address *at,
                                  const lb_launch *first, const lb_launch *like,
                                  lb_launch **out);

// -- repeat.c

// The launches of a twin whose operands lie like the partition's, of which the
// result is to lie like `result`; or NULL.
lb_status lb_planner_find_cached_launch(lb_planner *p, const lb_partition *part,
                                        const lb_tensor *result,
                                        const lb_cached_launch **out);
// Adds a step that does the same on what the partition reads and makes.
lb_status lb_planner_reuse_launch(lb_planner *p, const lb_partition *part,
                                  const lb_cached_launch *m);
// Remembers the launches of the last step, which `b` bound, for twins to come.
lb_status lb_planner_cache_launch(lb_planner *p, const lb_partition *part,
                                  const lb_binding *b);

// -- recurrent.c

// Adds kernels that run in turns, with `call`, their node's, as the cover; or
// `call` alone.
lb_status lb_planner_recurrent(lb_planner *p, const lb_partition *part,
                               lb_step *call);

#endif
