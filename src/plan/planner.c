// plan/planner.c -- turns nodes into steps.
//
// Nodes are planned in order. A node that depends on data not known yet is
// deferred to the next stage, together with all nodes that depend on it; all
// other nodes are planned.
#include "plan/planner.h"

#include <string.h>

#include "device/reference/reference.h"
#include "graph/infer.h"
#include "plan/skip.h"

// Values of which the output of n may be a view that keeps all elements in
// order may be written to the result that the output may be written to.
static void extend_path(lb_planner *p, const lb_node *n) {
  if (!n->optimized || !n->out[0]) return;
  const lb_output_path *to = &p->tally.output_of[n->out[0]->id];
  if (!to->result) return;
  uint32_t inputs = n->in_order ? 1u << n->proof.input : lb_skip_viewed(n->op);
  for (uint32_t k = 0; k < n->n_in && k < 32; k++) {
    if (!(inputs >> k & 1) || !n->in[k] || !n->in[k]->producer) continue;
    lb_output_path *from = &p->tally.output_of[n->in[k]->id];
    if (!from->result)
      *from = (lb_output_path){.result = to->result,
                               .conditional = to->conditional || !n->in_order,
                               .via = n};
  }
}

static bool is_known(const lb_pvalue *s) { return s->buffer == LB_NO_BUFFER; }

void lb_planner_count(lb_planner *p, const lb_region *r) {
  for (uint32_t i = r->n_nodes; i-- > 0;) {
    const lb_node *n = r->nodes[i];
    bool needed = false;
    for (uint32_t k = 0; k < n->n_out; k++)
      needed |= n->out[k] && p->tally.uses[n->out[k]->id] > 0;
    p->tally.needed[n->id] = needed;
    if (!needed && p->plan)
      lb_planner_note(p, n, LB_NODE_NOT_NEEDED, LB_REASON_NOT_REQUESTED,
                      LB_NO_VALUE);
    if (!needed) continue;
    for (uint32_t k = 0; k < n->n_in; k++)
      if (n->in[k]) p->tally.uses[n->in[k]->id]++;
    lb_planner_find_concat_dests(p, n);
    if (n->n_out) extend_path(p, n);
  }
}

// Requests the contents of a value as a stage result; once per value.
static lb_status request_contents(lb_planner *p, const lb_value *v) {
  uint32_t id = lb_planner_root(p, v->id);
  for (uint32_t i = 0; i < p->plan->n_stage_results; i++)
    if (p->steps.stage_result_values[i] == id) return LB_OK;
  lb_stage_result f = {.kind = LB_STAGE_RESULT_CONTENTS};
  LB_TRY(lb_planner_operand(p, p->values.states[id], &f.source));
  return lb_planner_add_stage_result(p, f, id);
}

// The states of the inputs; *ready is false if the node must be deferred.
static lb_status inputs_of(lb_planner *p, const lb_node *n,
                           const lb_pvalue **in, bool *ready) {
  *ready = true;
  for (uint32_t i = 0; i < n->n_in; i++) {
    in[i] = NULL;
    if (!n->in[i]) continue;
    LB_TRY(lb_planner_state(p, n->in[i], &in[i]));
    if (!in[i]) *ready = false;
  }
  return LB_OK;
}

// Requests contents that decide this node's shapes and are not known; then
// *ready is false.
static lb_status need_contents(lb_planner *p, const lb_node *n,
                               const lb_pvalue *const *in, bool *ready) {
  uint32_t deciding = lb_op_infos[n->op].deciding;
  for (uint32_t i = 0; i < n->n_in && i < 32; i++) {
    if (!(deciding >> i & 1) || !in[i] || is_known(in[i])) continue;
    *ready = false;
    LB_TRY(request_contents(p, n->in[i]));
  }
  return LB_OK;
}

// -- If ----------------------------------------------------------------------

static void add_alias(lb_planner *p, const lb_value *from, const lb_value *to) {
  uint32_t root = lb_planner_root(p, to->id);
  p->values.alias[from->id] = root + 1;
  p->tally.uses[root] += p->tally.uses[from->id];
}

static lb_status plan_if(lb_planner *p, const lb_node *n) {
  const lb_pvalue *cond;
  LB_TRY(lb_planner_state(p, n->in[0], &cond));
  if (!cond) return lb_planner_defer(p, n);
  if (!is_known(cond)) {
    LB_TRY(request_contents(p, n->in[0]));
    return lb_planner_defer(p, n);
  }
  char label[128];
  if (cond->tensor->dtype != LB_BOOL || lb_tensor_count(cond->tensor) != 1)
    return lb_error(LB_INVALID, "%s: the condition must be one bool",
                    lb_node_label(n, label, sizeof label));
  bool taken = *(const uint8_t *)cond->tensor->data != 0;
  const lb_region *r = n->regions[taken ? 0 : 1];
  for (uint32_t i = 0; i < n->n_out; i++) {
    if (!n->out[i] || !p->tally.uses[n->out[i]->id]) continue;
    p->tally.uses[r->results[i]->id]++;
    if (r->results[i]->producer)
      p->tally.output_of[r->results[i]->id] = p->tally.output_of[n->out[i]->id];
  }
  lb_planner_count(p, r);
  for (uint32_t i = 0; i < n->n_captures; i++)
    add_alias(p, r->params[i], n->in[n->n_in - n->n_captures + i]);
  for (uint32_t i = 0; i < n->n_out; i++) {
    if (!n->out[i] || !p->tally.uses[n->out[i]->id]) continue;
    add_alias(p, n->out[i], r->results[i]);
    lb_planner_unuse(p, r->results[i], 1);  // the read that made it needed
  }
  lb_planner_unuse_inputs(p, n);
  lb_planner_note(p, n, LB_NODE_BRANCH, LB_REASON_BRANCH, LB_NO_VALUE);
  lb_planner_drop_unread(p, (const lb_node *const *)r->nodes, r->n_nodes);
  return lb_planner_region(p, r);
}

// -- kernels -----------------------------------------------------------------

// Describes what is known of an input; all dims are constants.
static void describe(const lb_pvalue *s, lb_vinfo *out) {
  const lb_tensor *t = s->tensor;
  out->dtype = t->dtype;
  out->rank = t->rank;
  for (int i = 0; i < t->rank; i++) out->dims[i] = lb_dim_const(t->dims[i]);
  out->data = is_known(s) ? t : NULL;
  out->known = NULL;
  out->n_known = 0;
}

typedef struct inference {  // of one node, in scratch memory
  lb_vinfo *in_info, *out_info;
  lb_tensor *out;
} inference;

static lb_status begin_inference(lb_planner *p, const lb_node *n,
                                 inference *r) {
  *r = (inference){LB_SCRATCH(p, lb_vinfo, n->n_in),
                   LB_SCRATCH(p, lb_vinfo, n->n_out),
                   LB_SCRATCH(p, lb_tensor, n->n_out)};
  return r->in_info && r->out_info && r->out ? LB_OK : lb_oom();
}

static lb_status infer(lb_planner *p, const lb_node *n,
                       const lb_pvalue *const *in, const inference *r) {
  for (uint32_t i = 0; i < n->n_in; i++) {
    if (in[i]) {
      describe(in[i], &r->in_info[i]);
    } else {
      r->in_info[i] = (lb_vinfo){.rank = -1};
    }
  }
  lb_infer c = {
      .node = n, .arena = &p->scratch, .in = r->in_info, .out = r->out_info};
  return lb_infer_node(&c);
}

// A value above the memory limit is rejected even if it would be a view of less
// memory, because its readers would iterate over all of it.
static lb_status tensor_of(const lb_planner *p, const lb_node *n,
                           const lb_vinfo *info, lb_tensor *out) {
  out->dtype = info->dtype;
  out->rank = info->rank;
  out->data = NULL;
  bool known = info->rank >= 0 && info->dtype != LB_NONE;
  for (int i = 0; known && i < info->rank; i++) {
    known = lb_dim_is_const(info->dims[i]);
    out->dims[i] = info->dims[i].k;
  }
  char label[128];
  if (!known)
    return lb_error(LB_INTERNAL, "%s: its shape rule left a dim open",
                    lb_node_label(n, label, sizeof label));
  lb_tensor_dense(out);
  size_t limit = p->prog->limit;
  if (limit && lb_tensor_bytes(out) > limit)
    return lb_error(LB_OOM,
                    "%s: an output of %zu bytes is over the memory limit of "
                    "%zu",
                    lb_node_label(n, label, sizeof label), lb_tensor_bytes(out),
                    limit);
  return LB_OK;
}

static lb_status tensors_of(const lb_planner *p, const lb_node *n,
                            const inference *r) {
  for (uint32_t i = 0; i < n->n_out; i++) {
    r->out[i].dtype = LB_NONE;
    r->out[i].rank = 0;
    if (n->out[i]) LB_TRY(tensor_of(p, n, &r->out_info[i], &r->out[i]));
  }
  return LB_OK;
}

// Whether all inputs are known and all outputs are small.
static bool is_computable(const lb_node *n, const lb_pvalue *const *in,
                          const lb_tensor *out) {
  if (!lb_op_is_pure(n->op)) return false;
  for (uint32_t i = 0; i < n->n_out; i++)
    if (lb_tensor_count(&out[i]) > LB_MAX_KNOWN) return false;
  if (lb_op_has(n->op, LB_TRAIT_DIMS_ONLY)) return true;
  for (uint32_t i = 0; i < n->n_in; i++)
    if (in[i] && !is_known(in[i])) return false;
  return true;
}

static lb_status compute_now(lb_planner *p, const lb_node *n,
                             const lb_pvalue *const *in, lb_tensor *out) {
  lb_tensor *args = lb_arena_new(&p->scratch, lb_tensor, n->n_in);
  if (!args) return lb_oom();
  for (uint32_t i = 0; i < n->n_in; i++)
    if (in[i]) args[i] = *in[i]->tensor;
  for (uint32_t i = 0; i < n->n_out; i++) {
    if (!lb_planner_is_read(p, n->out[i]))
      out[i] = (lb_tensor){.dtype = LB_NONE};
    if (out[i].dtype == LB_NONE) continue;
    out[i].data = lb_arena_zalloc(p->arena, lb_tensor_bytes(&out[i]), 64);
    if (!out[i].data) return lb_oom();
  }
  lb_reference_call c = {
      .node = n, .in = args, .out = out, .scratch = &p->scratch};
  LB_TRY(lb_reference_run(&c));
  for (uint32_t i = 0; i < n->n_out; i++)
    if (out[i].dtype != LB_NONE)
      LB_TRY(lb_planner_set_const(p, n->out[i], &out[i]));
  lb_planner_note(p, n, LB_NODE_COMPUTED, LB_REASON_KNOWN, LB_NO_VALUE);
  return LB_OK;
}

// The reason why a node is not part of a launch.
static lb_reason why_alone(const lb_planner *p, const lb_node *n) {
  const lb_partitioning *parts = p->prog->parts;
  if (!parts) return LB_REASON_REFERENCE_ONLY;
  return parts->of_node[n->id] ? LB_REASON_PARTLY
                               : (lb_reason)parts->refusals[n->id];
}

static lb_status emit_call(lb_planner *p, const lb_node *n,
                           const lb_pvalue *const *in, const lb_tensor *out) {
  const lb_partition *part =
      p->prog->parts ? p->prog->parts->of_node[n->id] : NULL;
  lb_step call;
  LB_TRY(lb_planner_new_call(p, n, in, why_alone(p, n), &call));
  for (uint32_t i = 0; i < n->n_out; i++) {
    if (!lb_planner_is_read(p, n->out[i])) continue;
    LB_TRY(lb_planner_place(p, n->out[i], &out[i]));
    LB_TRY(
        lb_planner_operand(p, p->values.states[n->out[i]->id], &call.out[i]));
  }
  if (part && part->recurrent) return lb_planner_recurrent(p, part, &call);
  return lb_planner_push_call(p, &call);
}

// Assigns dynamic buffers to the outputs; their dims become stage results.
static lb_status add_dynamic_outputs(lb_planner *p, const lb_step *step,
                                     const lb_vinfo *out_info) {
  const lb_node *n = step->node;
  for (uint32_t i = 0; i < n->n_out; i++) {
    if (!lb_planner_is_read(p, n->out[i])) continue;
    uint32_t dynamic_buffer = p->plan->n_dynamic++;
    lb_tensor t = {.dtype = out_info ? out_info[i].dtype : LB_NONE}, *kept;
    LB_TRY(lb_planner_copy_to_plan(p, &t, &kept));
    step->out[i] = (lb_step_operand){.tensor = kept,
                                     .storage = LB_STORAGE_DYNAMIC,
                                     .index = dynamic_buffer,
                                     .value = n->out[i]->id};
    lb_stage_result f = {.kind = LB_STAGE_RESULT_DIMS,
                         .dynamic_buffer = dynamic_buffer};
    LB_TRY(lb_planner_add_stage_result(p, f, n->out[i]->id));
  }
  return LB_OK;
}

// Plans a node whose outputs have the dims of `out`.
static lb_status plan_outputs(lb_planner *p, const lb_node *n,
                              const lb_pvalue *const *in, lb_tensor *out) {
  bool done;
  if (is_computable(n, in, out)) return compute_now(p, n, in, out);
  LB_TRY(lb_planner_skip_empty(p, n, in, out, &done));
  if (!done) LB_TRY(lb_planner_skip(p, n, in, out, &done));
  if (!done && n->op == LB_OP_Concat && !p->prog->no_skip)
    LB_TRY(lb_planner_concat(p, n, in, out, &done));
  return done ? LB_OK : emit_call(p, n, in, out);
}

static lb_status plan_call(lb_planner *p, const lb_node *n,
                           const lb_pvalue *const *in) {
  inference r;
  LB_TRY(begin_inference(p, n, &r));
  if (lb_planner_expect_moved(p, n, in, r.out))
    return plan_outputs(p, n, in, r.out);
  LB_TRY(infer(p, n, in, &r));
  if (lb_op_has(n->op, LB_TRAIT_DYNAMIC)) {
    lb_step call;
    LB_TRY(lb_planner_new_call(p, n, in, LB_REASON_DYNAMIC, &call));
    LB_TRY(add_dynamic_outputs(p, &call, r.out_info));
    return lb_planner_push_call(p, &call);
  }
  LB_TRY(tensors_of(p, n, &r));
  return plan_outputs(p, n, in, r.out);
}

lb_status lb_planner_infer(lb_planner *p, const lb_node *n,
                           const lb_pvalue *const *in, const lb_tensor **out,
                           bool *call) {
  uint32_t deciding = lb_op_infos[n->op].deciding;
  inference r;
  *call = !(p->dims.exact && n->out[0]->info.known);
  for (uint32_t i = 0; i < n->n_in && i < 32; i++)
    if (deciding >> i & 1 && in[i] && !is_known(in[i])) *call = false;
  if (!*call) return LB_OK;
  LB_TRY(begin_inference(p, n, &r));
  LB_TRY(infer(p, n, in, &r));
  LB_TRY(tensors_of(p, n, &r));
  *call = !is_computable(n, in, r.out);
  *out = r.out;
  return LB_OK;
}

// -- Loop and Scan -----------------------------------------------------------

// The body of a loop is planned for dense inputs, so strided views are copied.
// The copies are freed after the loop.
static lb_status plan_loop(lb_planner *p, const lb_node *n,
                           const lb_pvalue *const *in) {
  lb_step_operand *temps = LB_SCRATCH(p, lb_step_operand, n->n_in);
  uint32_t n_temps = 0;
  lb_step step;
  if (!temps) return lb_oom();
  LB_TRY(lb_planner_new_call(p, n, in, LB_REASON_REFERENCE_ONLY, &step));
  step.kind = LB_STEP_LOOP;
  for (uint32_t i = 0; i < n->n_in; i++) {
    if (!in[i] || lb_tensor_is_dense(in[i]->tensor)) continue;
    lb_step_operand *dense = &temps[n_temps++];
    LB_TRY(lb_planner_temp(p, in[i]->tensor, dense));
    dense->value = in[i]->value;
    LB_TRY(lb_planner_copy(p, step.in[i], *dense,
                           lb_planner_moved_by(p, n->in[i]), LB_REASON_LAYOUT));
    step.in[i] = *dense;
  }
  LB_TRY(add_dynamic_outputs(p, &step, NULL));
  lb_planner_note(p, n, LB_NODE_LOOP, LB_REASON_BODY, LB_NO_VALUE);
  LB_TRY(lb_planner_push(p, &step));
  while (n_temps) lb_planner_end_temp(p, &temps[--n_temps]);
  return LB_OK;
}

// -- nodes in order ----------------------------------------------------------

lb_status lb_planner_node(lb_planner *p, const lb_node *n, bool *deferred) {
  bool known;
  *deferred = false;
  LB_TRY(lb_planner_known(p, n, &known));
  if (known) return LB_OK;
  const lb_pvalue **in = LB_SCRATCH(p, const lb_pvalue *, n->n_in);
  bool ready;
  if (!in) return lb_oom();
  LB_TRY(inputs_of(p, n, in, &ready));
  if (ready) LB_TRY(need_contents(p, n, in, &ready));
  *deferred = !ready;
  if (!ready) return lb_planner_defer(p, n);
  LB_TRY(lb_op_infos[n->op].cls == LB_CLASS_CONTROL ? plan_loop(p, n, in)
                                                    : plan_call(p, n, in));
  for (uint32_t i = 0; i < n->n_out; i++) {
    const lb_value *v = n->out[i];
    if (v && p->values.states[v->id])
      lb_planner_learn(p, v, p->values.states[v->id]->tensor);
  }
  return LB_OK;
}

static lb_status plan_alone(lb_planner *p, const lb_node *n) {
  bool deferred;
  LB_TRY(lb_planner_node(p, n, &deferred));
  if (!deferred) lb_planner_unuse_inputs(p, n);
  lb_arena_reset(&p->scratch);
  return LB_OK;
}

// Only the branch that was not taken read them. The order is reversed, so that
// whole chains are dropped.
void lb_planner_drop_unread(lb_planner *p, const lb_node *const *nodes,
                            uint32_t n) {
  for (uint32_t i = n; i-- > 0;) {
    const lb_node *x = nodes[i];
    bool wanted = false;
    for (uint32_t k = 0; k < x->n_out; k++)
      wanted |= lb_planner_is_read(p, x->out[k]);
    if (wanted || !p->tally.needed[x->id]) continue;
    p->tally.needed[x->id] = false;
    lb_planner_note(p, x, LB_NODE_NOT_NEEDED, LB_REASON_NOT_REQUESTED,
                    LB_NO_VALUE);
    lb_planner_unuse_inputs(p, x);
  }
}

#define LINE 64  // bytes of a cache line

static void prefetch(const void *at, size_t bytes) {
  for (size_t i = 0; at && i < bytes; i += LINE)
    __builtin_prefetch((const char *)at + i);
}

static void prefetch_lists(const lb_partition *part) {
  prefetch(part->nodes, part->n_nodes * sizeof(lb_node *));
  prefetch(part->reads, part->n_reads * sizeof *part->reads);
  prefetch(part->inputs, part->n_inputs * sizeof *part->inputs);
  prefetch(part->window, LINE);
  prefetch(part->memo, sizeof *part->memo);
}

static void prefetch_spec(const lb_partition *part) {
  const lb_memo *m = part->memo;
  prefetch(m ? atomic_load_explicit(&m->first, memory_order_relaxed) : NULL,
           sizeof(lb_memo_spec) + LINE);
  prefetch(part->nodes[part->anchor], sizeof(lb_node));
  if (part->plain) prefetch(lb_partition_result(part), sizeof(lb_value));
}

// Runs evict most of the planner's data from the L1 and L2 caches. It is
// prefetched while earlier nodes are planned, one pointer level per node: a
// pointer is followed one node after it was prefetched.
static void prefetch_ahead(const lb_partitioning *parts,
                           const lb_node *const *nodes, uint32_t n,
                           uint32_t i) {
  const lb_partition *part[4] = {NULL};
  for (uint32_t k = 1; k < 4 && i + k < n; k++)
    part[k] = parts->of_node[nodes[i + k]->id];
  if (i + 4 < n) prefetch(nodes[i + 4], sizeof(lb_node));
  prefetch(part[3], sizeof(lb_partition));
  if (part[2]) prefetch_lists(part[2]);
  if (part[1]) prefetch_spec(part[1]);
}

lb_status lb_planner_nodes(lb_planner *p, const lb_node *const *nodes,
                           uint32_t n) {
  const lb_partitioning *parts = p->prog->parts;
  for (uint32_t i = 0; i < n; i++) {
    const lb_node *x = nodes[i];
    if (parts) prefetch_ahead(parts, nodes, n, i);
    if (!p->tally.needed[x->id]) continue;
    const lb_partition *part = parts ? parts->of_node[x->id] : NULL;
    if (x->op == LB_OP_If)
      LB_TRY(plan_if(p, x));
    else if (!part || part->recurrent)
      LB_TRY(plan_alone(p, x));
    else if (x == part->nodes[part->n_nodes - 1])
      LB_TRY(lb_planner_partition(p, part));
  }
  return LB_OK;
}

lb_status lb_planner_region(lb_planner *p, const lb_region *r) {
  lb_order order = lb_orders_get(&p->prog->orders, p->prog->graph, r);
  return lb_planner_nodes(p, order.nodes, order.n);
}
