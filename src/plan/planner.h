// plan/planner.h -- the state of planning one region, stage after stage.
// Internal to the room.
//
// Arrays are by value id or node id of the whole graph. A value of an If's
// branch appears once in a plan, so ids never clash; parameters of the branch
// and outputs of the If are *aliases* of the values they stand for.
#ifndef LB_PLAN_PLANNER_H
#define LB_PLAN_PLANNER_H

#include "device/cpu/split.h"
#include "plan/memory.h"
#include "plan/plan.h"

#define LB_NO_BUFFER UINT32_MAX

// A value whose dims are known. Immutable once made.
typedef struct lb_pvalue {
  const lb_tensor *tensor;  // strides; data for constants, which lie in a
                            // plan's arena or are the graph's. Others last as
                            // long as planning does
  uint32_t buffer;          // LB_NO_BUFFER: a constant, contents are known
  int64_t offset;           // bytes into the buffer
} lb_pvalue;

typedef struct lb_pbuf {
  lb_place place;
  uint32_t index;  // input, output or own buffer
  int64_t mark;    // in the arena; else 0
  uint32_t refs;   // values that live in it
} lb_pbuf;

typedef struct lb_made lb_made;  // launches of a partition: see repeat.c

typedef struct lb_planner {
  const lb_program *prog;
  const lb_region *region;
  bool rehearses;    // see lb_desk
  lb_plan *plan;     // being built; borrowed
  lb_arena *arena;   // the plan's: what a run needs
  lb_arena *state;   // the plan's: what later stages need, all below
  lb_arena scratch;  // for evaluation while planning

  const lb_pvalue **states;  // NULL: not known yet
  uint32_t *alias;           // 0: itself; else id + 1
  uint32_t *uses;            // reads still to be planned
  uint32_t *lands;           // 0: nowhere; else result + 1 it may be written to
  lb_home *homes;            // by value id
  const lb_pvalue **rooms;   // by value id: memory that a Concat was promised
  bool *needed;              // by node id
  bool *planned;             // by node id: done as a member of a partition
  bool *claimed;             // by result: some value is written there
  bool *delivered;           // by result: all of it is planned
  const lb_want *want;       // by result
  const lb_made **made;      // by group of twins, in this stage; or NULL

  int64_t *sizes;    // by number of plan/sizes.h; -1: not known
  int64_t *symbols;  // by symbol; likewise
  bool exact;        // all states have the dims that expressions say

  lb_pbuf *bufs;
  uint32_t n_bufs, cap_bufs;
  lb_memory memory;

  const lb_node **pending;  // for the next stage, in order
  uint32_t *fact_values;    // by fact: the value it speaks of
  uint32_t n_pending, cap_pending, cap_facts, cap_steps, cap_binds;
} lb_planner;

// -- planner.c: nodes --------------------------------------------------------

// Counts the reads of a region's needed nodes; results were counted before.
void lb_planner_count(lb_planner *p, const lb_region *r);
lb_status lb_planner_nodes(lb_planner *p, const lb_node *const *nodes,
                           uint32_t n);
lb_status lb_planner_region(lb_planner *p, const lb_region *r);  // all of it
// Forgets nodes that waited for this stage and that nobody reads any more.
void lb_planner_drop_unread(lb_planner *p, const lb_node *const *nodes,
                            uint32_t n);
// Copies results that are known but not in place yet, and names their dims.
lb_status lb_planner_deliver(lb_planner *p);

// Plans one node; what it reads is still counted as read.
lb_status lb_planner_node(lb_planner *p, const lb_node *n, bool *deferred);
void lb_planner_unuse_inputs(lb_planner *p, const lb_node *n);
// Whether v may be written to the caller's memory, dense.
bool lb_planner_lands(const lb_planner *p, const lb_value *v);
// All of v, dense, like t: in the caller's memory if it may be written there.
lb_status lb_planner_place(lb_planner *p, const lb_value *v,
                           const lb_tensor *t);
// Memory for all of v, like t: the caller's if v may be written there.
lb_status lb_planner_buffer(lb_planner *p, const lb_value *v,
                            const lb_tensor *t, uint32_t *out);

// -- window.c: results that are written to windows of the caller's -----------

// The tensor of a result, which is like t, in the window that was asked for;
// *found is false if none was. LB_INVALID if its strides do not suit.
lb_status lb_planner_window(lb_planner *p, uint32_t result, const lb_tensor *t,
                            lb_tensor *out, bool *found);
// v, which is like t when it is dense, in the window of the result that it may
// be written to; *found is false if there is none.
lb_status lb_planner_find_window(lb_planner *p, const lb_value *v,
                                 const lb_tensor *t, lb_tensor *out,
                                 bool *found);
// It will be written there: the window, which was found, is bound.
lb_status lb_planner_take_window(lb_planner *p, const lb_value *v,
                                 const lb_tensor *t, uint32_t *result);

// -- direct.c: dims by expressions -------------------------------------------

// Takes the dims of v, which are known, for sizes that are not; where others
// are known, dims are not exact.
void lb_planner_learn(lb_planner *p, const lb_value *v, const lb_tensor *t);
// The dims of v as expressions say, dense; false if some size is not known.
bool lb_planner_expect(lb_planner *p, const lb_value *v, lb_tensor *out);

// The outputs of a node that moves elements, as expressions say: false if some
// size is not known, or if inputs do not fit together, or if it is another kind
// of node. What a shape rule would refuse is never expected.
bool lb_planner_expect_moved(lb_planner *p, const lb_node *n,
                             const lb_pvalue *const *in, lb_tensor *out);

// Computes what n makes, if it is shape arithmetic that is known as
// expressions; else *done is false.
lb_status lb_planner_known(lb_planner *p, const lb_node *n, bool *done);

// Plans a partition whose kernel the pack has without planning its nodes; *done
// is false if they have to be.
lb_status lb_planner_direct(lb_planner *p, const lb_partition *part,
                            bool *done);

// -- launch.c, recipe.c and prepare.c: partitions ----------------------------

// Plans the members of a partition, whose last node has been reached.
lb_status lb_planner_partition(lb_planner *p, const lb_partition *part);

// All of a launch that spec and facts decide.
typedef struct lb_recipe_operand {
  uint8_t size;     // bytes of an element
  uint8_t panels;   // columns of one, which the kernel walks by itself; or 0
  bool rows, cols;  // it is walked along
} lb_recipe_operand;

typedef struct lb_recipe {
  lb_slot *slot;
  lb_split_basis basis;
  lb_sargs cells;
  uint8_t n_operands, n_dims, n_scalars;
  bool taps;
  lb_recipe_operand operands[LB_SPEC_MAX_OUT + LB_SPEC_MAX_IN];
} lb_recipe;
void lb_recipe_init(lb_recipe *r, const lb_spec *s, lb_slot *slot);

// The recipe of a binding, whose slot is interned: the one that the memo keeps,
// or else *made, which the memo keeps from now on.
lb_status lb_planner_recipe(lb_planner *p, const lb_binding *b,
                            const lb_recipe **known, lb_recipe *made);

// Where the values of operands begin; all of them have states.
lb_status lb_planner_spots(lb_planner *p, const lb_partition *part,
                           const lb_binding *b, lb_spot *out);
// The same of one value; NULL: the partition's weights.
lb_status lb_planner_value_spot(lb_planner *p, const lb_partition *part,
                                const lb_value *v, lb_spot *out);
// `offset` bytes behind the first of an operand.
lb_spot lb_planner_spot(const lb_planner *p, const lb_operand *at,
                        int64_t offset);

// The call of a kernel on what `b` binds, whose values begin `at`.
lb_status lb_planner_prepare(lb_planner *p, const lb_recipe *r,
                             const lb_binding *b, const lb_spot *at,
                             lb_launch **out);
// The same of another zone of what `first` begins; `like` is that of one with
// the same axis.
lb_status lb_planner_prepare_zone(lb_planner *p, const lb_recipe *r,
                                  const lb_binding *b, const lb_spot *at,
                                  const lb_launch *first, const lb_launch *like,
                                  lb_launch **out);

// Binds a partition whose result is to lie like `result`.
lb_status lb_planner_bind_as(lb_planner *p, const lb_partition *part,
                             const lb_tensor *result, lb_binding *b, bool *ok);

// Adds a step for all zones of what `b` binds, which is used up.
lb_status lb_planner_add_launch(lb_planner *p, const lb_partition *part,
                                lb_binding *b, const lb_recipe *r);

// A lb_tensor_fn: what the planner, `user`, knows of a value.
lb_status lb_planner_tensor(void *user, const lb_value *v, lb_tensor *out);

// -- repeat.c ----------------------------------------------------------------

// The launches of a twin whose operands lie like the partition's, of which the
// result is to lie like `result`; or NULL.
lb_status lb_planner_find_made(lb_planner *p, const lb_partition *part,
                               const lb_tensor *result, const lb_made **out);
// Adds a step that does the same on what the partition reads and makes.
lb_status lb_planner_repeat(lb_planner *p, const lb_partition *part,
                            const lb_made *m);
// Remembers the launches of the last step, which `b` bound, for twins to come.
lb_status lb_planner_note_made(lb_planner *p, const lb_partition *part,
                               const lb_binding *b);

// -- recurrent.c -------------------------------------------------------------

// Puts kernels that run in turns before the step of a recurrent partition's
// node, the last one, which is their cover.
lb_status lb_planner_recurrent(lb_planner *p, const lb_partition *part);

// -- join.c ------------------------------------------------------------------

// Notes where the inputs of a needed node are to lie. Readers come first.
void lb_planner_note_homes(lb_planner *p, const lb_node *n);

// How v, like t when it is dense, would lie inside the result of a Concat. A
// launch can write it so.
lb_status lb_planner_find_room(lb_planner *p, const lb_value *v,
                               const lb_tensor *t, lb_tensor *out, bool *found);
// Moves v there, which has been found.
lb_status lb_planner_enter_room(lb_planner *p, const lb_value *v,
                                const lb_tensor *t);

// Plans a Concat some of whose inputs may lie in place; *done is false if none
// can.
lb_status lb_planner_join(lb_planner *p, const lb_node *n,
                          const lb_pvalue *const *in, const lb_tensor *out,
                          bool *done);

// -- cover.c -----------------------------------------------------------------

// Adds the steps that stand for the partition while `slot`, which is its own,
// is empty. calls[i] is the call of node i.
lb_status lb_planner_cover(lb_planner *p, const lb_partition *part,
                           lb_slot *slot, const lb_step *calls);

// -- values.c: states, buffers, operands -------------------------------------

uint32_t lb_planner_root(const lb_planner *p, uint32_t id);
// NULL if not known yet; constants always are.
lb_status lb_planner_find(lb_planner *p, const lb_value *v,
                          const lb_pvalue **out);
static inline lb_status lb_planner_state(lb_planner *p, const lb_value *v,
                                         const lb_pvalue **out) {
  *out = p->states[v->id];  // an alias has none
  return *out ? LB_OK : lb_planner_find(p, v, out);
}
// The tensor was jotted down; of a constant it is kept, or outlives the plan.
lb_status lb_planner_set(lb_planner *p, const lb_value *v, lb_pvalue s);
// Contents known: t->data lies in the plan's arena or outlives it.
lb_status lb_planner_set_const(lb_planner *p, const lb_value *v,
                               const lb_tensor *t);
lb_status lb_planner_add_buffer(lb_planner *p, const lb_tensor *t,
                                lb_place place, uint32_t index, uint32_t *out);
// One value less lives in a buffer; without any its memory is given back.
void lb_planner_leave(lb_planner *p, uint32_t buffer);
// A value at the beginning of a buffer of its own kind, with the strides of t.
lb_status lb_planner_set_view(lb_planner *p, const lb_value *v,
                              const lb_tensor *t, lb_place place,
                              uint32_t index);
// The same, dense.
lb_status lb_planner_set_dense(lb_planner *p, const lb_value *v,
                               const lb_tensor *t, lb_place place,
                               uint32_t index);
void lb_planner_unuse(lb_planner *p, const lb_value *v);
void lb_planner_unuse_times(lb_planner *p, const lb_value *v, uint32_t times);
// A copy in the plan's arena, of the dims that there are.
lb_status lb_planner_keep(lb_planner *p, const lb_tensor *t, lb_tensor **out);
// The same among what later stages need: few values are read by more than
// launches, which have no use for tensors.
lb_status lb_planner_jot(lb_planner *p, const lb_tensor *t, lb_tensor **out);
// Where a value lies; its tensor is not for steps.
lb_operand lb_planner_where(const lb_planner *p, const lb_pvalue *s);
// The operand of a step.
lb_status lb_planner_operand(lb_planner *p, const lb_pvalue *s,
                             lb_operand *out);

lb_status lb_planner_step(lb_planner *p, const lb_node *node, lb_step_kind kind,
                          uint32_t n_in, uint32_t n_out, lb_step **out);
lb_status lb_planner_bind(lb_planner *p, uint32_t result, const lb_tensor *t);
lb_status lb_planner_fact(lb_planner *p, lb_fact fact, uint32_t value);
lb_status lb_planner_defer(lb_planner *p, const lb_node *node);

#endif
