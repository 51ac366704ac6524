// plan/launch.h -- a partition as one launch.
//
// launch.c plans a partition and emits its launch and its cover;
// launch_template.c finds the slot and everything else that spec and facts
// determine; variants.c requests kernels; prepare.c builds the launch with
// everything but the base addresses of a run; reuse.c copies it for equivalent
// partitions; recurrent.c builds the launches of LSTM, GRU and RNN.
#ifndef LB_PLAN_LAUNCH_H
#define LB_PLAN_LAUNCH_H

#include "device/device.h"
#include "plan/values.h"

typedef struct lb_cached_launch lb_cached_launch;  // see reuse.c

typedef struct lb_launch_states {
  const lb_cached_launch **by_class;  // by partition class, in this stage;
                                      // NULL: none yet
  // The partition being planned, and the dims of the outputs of its first
  // n_dims nodes, which are all of them once it is bound. dims is NULL if dims
  // follow from expressions.
  const lb_partition *part;
  const lb_tensor *dims;
  uint32_t n_dims;
  bool covers;  // its launch has been emitted and is the disposition of its
                // members
} lb_launch_states;

// -- launch.c

// Plans the members of a partition whose last node has been reached.
lb_status lb_planner_partition(lb_planner *p, const lb_partition *part);

// Adds the step of a launch, and records it as the disposition of the members.
lb_status lb_planner_push_launch(lb_planner *p, const lb_partition *part,
                                 lb_launch *launch);
// Adds a step with a launch for each zone of `b`, which is modified.
struct lb_launch_template;
lb_status lb_planner_add_launch(lb_planner *p, const lb_partition *part,
                                lb_binding *b,
                                const struct lb_launch_template *r);

// The tensor of a member's output or of an input of the partition. An
// lb_tensor_fn: `user` is the planner.
lb_status lb_planner_tensor(void *user, const lb_value *v, lb_tensor *out);

// -- launch_template.c

// The part of a launch that spec and facts determine.
typedef struct lb_launch_template_operand {
  uint8_t size;     // bytes per element
  uint8_t panels;   // columns per panel, over which the kernel iterates itself;
                    // 0: no panels
  bool rows, cols;  // whether it advances along rows, columns
} lb_launch_template_operand;

typedef struct lb_launch_template {
  lb_slot *slot;
  lb_split_basis basis;
  lb_sargs cells;
  uint8_t n_operands, n_dims, n_scalars;
  bool taps;
  lb_launch_template_operand operands[LB_SPEC_MAX_OUT + LB_SPEC_MAX_IN];
  // Where the pieces of the partition's cover start: bit i stands for node i.
  // 0: not decided yet. See lb_planner_find_pieces.
  _Atomic uint64_t pieces;
} lb_launch_template;
void lb_launch_template_init(lb_launch_template *r, const lb_device *d,
                             const lb_spec *s, lb_slot *slot);

// Finds the launch template of a binding and creates its slot if necessary,
// without requesting its kernel. *known is the copy in the memo, or `built` if
// the memo has none.
lb_status lb_planner_launch_template(lb_planner *p, const lb_binding *b,
                                     const lb_launch_template **known,
                                     lb_launch_template *built);

// -- prepare.c

// The addresses of all operands, whose values must have states.
lb_status lb_planner_addresses(lb_planner *p, const lb_partition *part,
                               const lb_binding *b, lb_address *out);
// The address of one value; NULL: of the partition's packed weights.
lb_status lb_planner_value_address(lb_planner *p, const lb_partition *part,
                                   const lb_value *v, lb_address *out);
// The first byte of an operand.
lb_status lb_planner_address(lb_planner *p, const lb_step_operand *at,
                             lb_address *out);

// Builds the launch of `b`, whose values start at `at`.
lb_status lb_planner_prepare(lb_planner *p, const lb_launch_template *r,
                             const lb_binding *b, const lb_address *at,
                             lb_launch **out);
// Builds the launch of another zone. `first` is the first launch of the
// partition, `like` one of a zone with the same axis.
lb_status lb_planner_prepare_zone(lb_planner *p, const lb_launch_template *r,
                                  const lb_binding *b, const lb_address *at,
                                  const lb_launch *first, const lb_launch *like,
                                  lb_launch **out);

// -- reuse.c

// Finds the launches of an equivalent partition whose operands have the same
// dims and strides and whose result has those of `result`; else NULL.
lb_status lb_planner_find_cached_launch(lb_planner *p, const lb_partition *part,
                                        const lb_tensor *result,
                                        const lb_cached_launch **out);
// Adds a step with copies of these launches on the operands of this partition.
lb_status lb_planner_reuse_launch(lb_planner *p, const lb_partition *part,
                                  const lb_cached_launch *m);
// Remembers the launches of the last step, which was bound by `b`, for
// equivalent partitions.
lb_status lb_planner_cache_launch(lb_planner *p, const lb_partition *part,
                                  const lb_binding *b);

// -- recurrent.c

// Adds the kernels of a recurrence, with `call` as their cover; or `call`
// alone.
lb_status lb_planner_recurrent(lb_planner *p, const lb_partition *part,
                               lb_step *call);

#endif
