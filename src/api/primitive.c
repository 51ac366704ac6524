// api/primitive.c -- primitives: made, remembered, executed, asked about.
#include "api/primitive.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/error.h"
#include "api/options.h"
#include "api/session.h"
#include "graph/pass.h"

// Tables of a small session, about: symbols, sizes, specs.
#define TABLE_BYTES ((size_t)2 << 10)

// What plans of one primitive may take: at more shapes they are made again.
#define PLAN_BYTES ((size_t)4 << 20)

// What the runtime decides where attributes leave it open.
typedef struct decided {
  uint64_t passes_off;
  lb_policy policy;
  int32_t deterministic, reusable, reserved;
} decided;
_Static_assert(sizeof(decided) == 32, "no padding: it is part of a key");

typedef struct wish {
  limber_runtime *runtime;
  const lb_desc *desc;
  lb_prefer prefer;
  decided decided;
  size_t key_size, cache_size;
  uint8_t key[LB_KEY_MAX + sizeof(decided)];
} wish;

static void wish_init(wish *w, limber_runtime *r, const lb_desc *d) {
  w->runtime = r;
  w->desc = d;
  w->prefer = lb_prefer_of(d->attr->reusable, "attribute", r->prefer);
  w->decided =
      (decided){.passes_off = r->passes_off,
                .policy = r->policy,
                .deterministic = d->attr->deterministic || r->deterministic,
                .reusable = w->prefer.reusable};
  w->key_size = lb_desc_key(d, w->key);
  memcpy(w->key + w->key_size, &w->decided, sizeof w->decided);
  w->cache_size = w->key_size + sizeof w->decided;
}

// -- a primitive's life ------------------------------------------------------

static void retain(lb_primitive *p) { lb_ref_retain(&p->ref); }

static void release(lb_primitive *p) {
  if (!p || !lb_ref_release(&p->ref)) return;
  lb_session_free(p->session);
  lb_primitive_graph_fini(&p->g);
  free(p->text);
  free(p->key);
  free(p);
}

// [batch, channels, space...] becomes [batch, space..., channels], and back.
// Of dims, or of strides.
static void to_memory(int rank, int64_t *of) {
  int64_t channels = of[1];
  for (int i = 1; i < rank - 1; i++) of[i] = of[i + 1];
  of[rank - 1] = channels;
}

static void dims_from_memory(lb_tensor *t) {
  int64_t channels = t->dims[t->rank - 1];
  for (int i = t->rank - 1; i > 1; i--) t->dims[i] = t->dims[i - 1];
  t->dims[1] = channels;
}

// Tensors that have the dims of the graph's parameters, all of them numbers.
static void declared(const lb_primitive *p, lb_tensor *in) {
  for (uint32_t i = 0; i < p->g.n_in; i++) {
    const lb_vinfo *info = &p->g.graph->main->params[i]->info;
    in[i] = (lb_tensor){.dtype = info->dtype, .rank = info->rank};
    for (int k = 0; k < info->rank; k++) in[i].dims[k] = info->dims[k].k;
    lb_tensor_dense(&in[i]);
  }
}

static lb_status make_ready(lb_primitive *p, const wish *w) {
  const lb_desc *d = w->desc;
  const lb_kernels *k = &p->shared->kernels;
  lb_session_options o = {
      .plan_bytes = PLAN_BYTES,
      .slots = d->attr->reference ? NULL : k->slots,
      .service = d->attr->reference ? NULL : k->service,
      .quiet = w->decided.policy.quiet,
      .passive = true,  // in the cache it is not used: handles hold
      .critical = w->decided.policy.critical,
      .compile_threshold = w->decided.policy.compile_threshold,
      .passes_off = d->attr->reference ? LB_PASS_ALL : w->decided.passes_off,
      .log = &p->shared->log,
      .deterministic = w->decided.deterministic,
      .reusable = w->decided.reusable,
  };
  lb_session_stats stats;
  lb_plan_counts counts;
  lb_tensor in[LB_MAX_PORTS];
  LB_TRY(lb_primitive_graph_new(d, &p->g));
  LB_TRY(lb_session_new(p->g.graph, &o, &p->session));
  p->runtime_dims = lb_desc_has_runtime(d);
  p->user_scratch = d->attr->user_scratch != 0;
  declared(p, in);
  if (!p->runtime_dims) LB_TRY(lb_session_plan(p->session, in, NULL, &counts));
  lb_session_stats_get(p->session, &stats);
  p->bytes = sizeof *p + TABLE_BYTES + p->cache_size + strlen(p->text) +
             stats.own_bytes + stats.packed_bytes + p->g.graph->arena.used;
  return LB_OK;
}

static lb_status copy_key(lb_primitive *p, const wish *w) {
  p->key_size = w->key_size;
  p->cache_size = w->cache_size;
  p->key = malloc(p->cache_size);
  if (!p->key) return lb_oom();
  memcpy(p->key, w->key, p->cache_size);
  return LB_OK;
}

static lb_status build(const wish *w, lb_primitive **out) {
  lb_strbuf text = {0};
  LB_TRY(lb_desc_check(w->desc));
  lb_primitive *p = calloc(1, sizeof *p);
  if (!p) return lb_oom();
  lb_ref_init(&p->ref);
  p->shared = w->runtime->shared;
  lb_desc_print(w->desc, &text);
  lb_status st = lb_strbuf_status(&text);
  p->text = text.data;
  if (!lb_failed(st)) st = copy_key(p, w);
  if (!lb_failed(st)) st = make_ready(p, w);
  if (lb_failed(st)) {
    release(p);
  } else {
    *out = p;
  }
  return st;
}

// -- remembering -------------------------------------------------------------

static void cache_retain(void *value) { retain(value); }
// One that a program still holds gives back its memory between steps, which
// nothing counts any more.
static void cache_release(void *value) {
  lb_primitive *p = value;
  lb_session_trim(p->session);
  release(p);
}
// Plans and memory between steps.
static size_t added_bytes(const lb_primitive *p) {
  return lb_session_plan_bytes(p->session) +
         lb_session_scratch_bytes(p->session);
}
static uint64_t cache_bytes(const void *value) {
  const lb_primitive *p = value;
  return p->bytes + added_bytes(p);
}

#define FIELD(name) \
  { #name, offsetof(lb_key_head, name), sizeof(int32_t) }
static const lb_key_field head_fields[] = {
    FIELD(kind),      FIELD(alg),         FIELD(n_in),
    FIELD(n_post),    FIELD(reusable),    FIELD(deterministic),
    FIELD(reference), FIELD(user_scratch)};
static const lb_key_type key_type = {head_fields,
                                     sizeof head_fields / sizeof *head_fields};

static const lb_cache_type in_cache = {.retain = cache_retain,
                                       .release = cache_release,
                                       .bytes = cache_bytes,
                                       .key = &key_type};

lb_status lb_primitives_init(lb_cache *cache, lb_lru *lru) {
  return lb_cache_init(cache, lru, &in_cache);
}

// With runtime dims each shape adds a plan; and each execution that needs more
// memory between steps than those before keeps it.
static void count_added(lb_primitive *p) {
  size_t bytes = added_bytes(p);
  if (bytes == atomic_load_explicit(&p->counted, memory_order_relaxed)) return;
  atomic_store_explicit(&p->counted, bytes, memory_order_relaxed);
  lb_cache_recount(&p->shared->primitives, p->key, p->cache_size, p);
}

static void adopt(void *user, lb_slot *slot) {
  const limber_runtime *r = user;
  lb_slots_adopt(r->shared->kernels.slots, lb_runtime_user(r), slot);
}

// Plans are those of all handles: their slots are the runtime's, too.
static void adopt_plans(limber_primitive *p) {
  size_t bytes = lb_session_plan_bytes(p->core->session);
  if (bytes == atomic_load_explicit(&p->plan_bytes, memory_order_relaxed))
    return;
  atomic_store_explicit(&p->plan_bytes, bytes, memory_order_relaxed);
  lb_session_each_slot(p->core->session, adopt, p->runtime);
}

static bool same_elements(const limber_operand *o, const char *name,
                          const lb_graph *g) {
  if (!o->data) return true;
  for (uint32_t i = 0; i < g->n_values; i++) {
    const lb_tensor *t = lb_value_const(g->values[i]);
    if (!t || strcmp(g->values[i]->name, name) != 0) continue;
    size_t bytes = lb_desc_operand_bytes(o);
    return lb_tensor_bytes(t) == bytes && !memcmp(t->data, o->data, bytes);
  }
  return false;
}

// A key has a hash of the constants: these are compared themselves.
static bool same_constants(const lb_primitive *p, const lb_desc *d) {
  const lb_kind_info *kind = &lb_kind_infos[d->desc->kind];
  char name[24];
  for (uint32_t i = 0; i < kind->max_in; i++)
    if (!same_elements(&d->desc->in[i], kind->in[i].name, p->g.graph))
      return false;
  for (uint32_t i = 0; i < d->attr->n_post; i++) {
    snprintf(name, sizeof name, "post[%u]", i);
    if (!same_elements(&d->attr->post[i].in, name, p->g.graph)) return false;
  }
  return true;
}

static lb_status build_wish(void *user, void **out) {
  lb_primitive *p;
  LB_TRY(build(user, &p));
  *out = p;
  return LB_OK;
}

static lb_status find_or_build(wish *w, lb_primitive **out) {
  lb_cache *cache = &w->runtime->shared->primitives;
  void *found;
  LB_TRY(lb_cache_get(cache, w->key, w->cache_size, build_wish, w, &found));
  *out = found;
  if (same_constants(*out, w->desc)) return LB_OK;
  release(*out);
  *out = NULL;
  return build(w, out);
}

// NULL: no kernels are compiled for it in the background.
static lb_service *service_of(const limber_primitive *p) {
  return p->runtime->policy.quiet ? NULL : p->runtime->shared->kernels.service;
}

static lb_status create(limber_runtime *r, const lb_desc *d,
                        limber_primitive **out) {
  wish w;
  wish_init(&w, r, d);
  limber_primitive *p = calloc(1, sizeof *p);
  if (!p) return lb_oom();
  p->runtime = r;
  p->prefer = w.prefer;
  lb_status st = find_or_build(&w, &p->core);
  if (lb_failed(st)) {
    free(p);
    return st;
  }
  adopt_plans(p);
  if (service_of(p)) lb_service_hold(service_of(p));
  *out = p;
  return LB_OK;
}

void limber_primitive_destroy(limber_primitive *primitive) {
  if (!primitive) return;
  if (service_of(primitive)) lb_service_let_go(service_of(primitive));
  release(primitive->core);
  free(primitive);
}

limber_status limber_primitive_create(limber_runtime *runtime,
                                      const limber_primitive_desc *desc,
                                      const limber_attr *attr,
                                      limber_primitive **out) {
  limber_primitive_desc copy;
  limber_runtime *r;
  lb_desc d = {desc, attr ? attr : &lb_attr_none};
  *out = NULL;
  lb_status st = lb_runtime_of(runtime, &r);
  if (lb_failed(st)) return lb_report(st, NULL);
  if (!desc) st = lb_error(LB_INVALID, "limber_primitive_desc: is NULL");
  if (!lb_failed(st) && desc->size != sizeof *desc) {
    st = lb_options_read("limber_primitive_desc", desc, sizeof copy, &copy);
    d.desc = &copy;
  }
  if (!lb_failed(st)) st = create(r, &d, out);
  return lb_report(st, &r->log);
}

limber_status limber_primitive_wait(limber_primitive *primitive,
                                    double seconds) {
  const limber_runtime *r = primitive->runtime;
  return lb_report(lb_session_settle(primitive->core->session, seconds,
                                     lb_runtime_user(r).bit),
                   &r->log);
}

// -- executing ---------------------------------------------------------------

static lb_status take_inputs(const lb_primitive *p, const limber_tensor *inputs,
                             size_t n, bool planning, lb_tensor *in) {
  if (n != p->g.n_in)
    return lb_error(LB_INVALID, "%zu inputs were given, it takes %u", n,
                    p->g.n_in);
  for (size_t i = 0; i < n; i++) {
    const lb_port *port = &p->g.in[i];
    lb_status st = lb_api_take(&inputs[i], planning, &in[i]);
    if (!lb_failed(st) && port->last && in[i].rank < 3)
      st = lb_error(LB_INVALID, "rank %d, where channels lie last", in[i].rank);
    if (lb_failed(st)) return lb_status_note(st, "input '%s'", port->name);
    if (!port->last) continue;
    to_memory(in[i].rank, in[i].dims);
    to_memory(in[i].rank, in[i].strides);
    if (!inputs[i].strides) lb_tensor_dense(&in[i]);
  }
  return LB_OK;
}

typedef struct results {
  lb_output out[3];
  int64_t strides[3][LB_MAX_RANK];  // of those whose channels lie last
} results;

static lb_status take_outputs(const lb_primitive *p,
                              const limber_tensor *outputs, size_t n,
                              results *r) {
  *r = (results){0};
  if (n > p->g.n_out)
    return lb_error(LB_INVALID, "%zu outputs were asked for, it has %u", n,
                    p->g.n_out);
  for (size_t i = 0; i < n; i++) {
    const lb_port *port = &p->g.out[i];
    lb_output *o = &r->out[i];
    lb_status st = lb_api_take_output(&outputs[i], o);
    if (!lb_failed(st) && o->strides && port->last && o->rank < 3)
      st = lb_error(LB_INVALID, "rank %d, where channels lie last", o->rank);
    if (lb_failed(st)) return lb_status_note(st, "output '%s'", port->name);
    if (!o->strides || !port->last) continue;
    memcpy(r->strides[i], o->strides, (size_t)o->rank * sizeof *o->strides);
    to_memory(o->rank, r->strides[i]);
    o->strides = r->strides[i];
  }
  return LB_OK;
}

// What a sum adds may be the very memory of the result, which is written before
// all of it was read: then a copy is added.
static lb_status part_sum(const limber_primitive *handle, lb_tensor *in,
                          const lb_output *out, void **copy) {
  const lb_primitive *p = handle->core;
  *copy = NULL;
  for (uint32_t i = 0; i < p->g.n_in; i++) {
    const char *from = in[i].data, *to = out->data;
    size_t bytes, before;
    if (!p->g.in[i].sum || !to) continue;
    LB_TRY(lb_tensor_reach(&in[i], &bytes, &before));
    from -= before;
    if (from + bytes <= to || to + out->cap <= from) continue;
    lb_tensor part = in[i];
    lb_tensor_dense(&part);
    if (!*copy)
      *copy = lb_alloc_get(&handle->runtime->alloc, lb_tensor_bytes(&part));
    if (!*copy) return lb_oom();
    part.data = *copy;
    lb_tensor_copy(&in[i], &part);
    in[i] = part;
  }
  return LB_OK;
}

static lb_status execute(limber_primitive *handle, const limber_tensor *inputs,
                         size_t n_inputs, limber_tensor *outputs,
                         size_t n_outputs, const lb_run_how *how) {
  const lb_primitive *p = handle->core;
  lb_tensor in[LB_MAX_PORTS];
  results r;
  lb_output *out = r.out;
  void *copy;
  LB_TRY(take_inputs(p, inputs, n_inputs, false, in));
  LB_TRY(take_outputs(p, outputs, n_outputs, &r));
  lb_status st = part_sum(handle, in, &out[0], &copy);
  if (!lb_failed(st)) st = lb_session_run_so(p->session, in, out, how);
  lb_alloc_put(&handle->runtime->alloc, copy);
  for (size_t i = 0; !lb_failed(st) && i < n_outputs; i++) {
    if (p->g.out[i].last) dims_from_memory(&out[i].tensor);
    lb_api_give(handle->runtime, &out[i], &outputs[i]);
  }
  return st;
}

limber_status limber_primitive_execute(limber_primitive *primitive,
                                       const limber_tensor *inputs,
                                       size_t n_inputs, limber_tensor *outputs,
                                       size_t n_outputs,
                                       const limber_run_options *options) {
  lb_run_how how;
  lb_run_limits bound;
  lb_status st = lb_how_read(options, &bound, &how);
  if (primitive->core->user_scratch) how.lends = true;
  how.pool = primitive->runtime->pool;
  how.alloc = &primitive->runtime->alloc;
  if (!lb_failed(st))
    st = execute(primitive, inputs, n_inputs, outputs, n_outputs, &how);
  adopt_plans(primitive);
  count_added(primitive->core);
  return lb_report(st, &primitive->runtime->log);
}

// -- asking ------------------------------------------------------------------

static _Thread_local char implementation[8192];  // a longer one is cut

typedef struct answer {
  lb_strbuf text;
  lb_tier worst;
  bool reusable;
} answer;

static lb_status note_step(void *user, const lb_step_event *e) {
  answer *a = user;
  if (a->text.len) lb_strbuf_putc(&a->text, '\n');
  lb_strbuf_printf(&a->text, "%s %s", lb_tier_name(e->tier),
                   e->node ? lb_op_infos[e->node->op].name : "Copy");
  if (e->slot) {
    lb_strbuf_putc(&a->text, ' ');
    lb_spec_print(&e->slot->key.spec, &a->text);
    lb_strbuf_puts(&a->text, " | ");
    lb_facts_print(&e->slot->key.facts, &a->text);
    if (!lb_facts_reusable(&e->slot->key.facts)) a->reusable = false;
  }
  if (e->tier < a->worst) a->worst = e->tier;
  return LB_OK;
}

static limber_layout layout_of(const lb_port *port) {
  return port->last ? LIMBER_LAYOUT_CHANNELS_LAST : LIMBER_LAYOUT_ROW_MAJOR;
}

static lb_status query(const limber_primitive *handle,
                       const limber_tensor *inputs, size_t n_inputs,
                       limber_primitive_info *out) {
  const lb_primitive *p = handle->core;
  lb_tensor in[LB_MAX_PORTS];
  answer a = {.worst = LB_TIER_FUSED, .reusable = true};
  lb_plan_counts n;
  lb_session_stats stats;
  if (inputs) {
    LB_TRY(take_inputs(p, inputs, n_inputs, true, in));
  } else if (p->runtime_dims) {
    return lb_error(LB_INVALID,
                    "it has runtime dims: give inputs with their dims");
  } else {
    declared(p, in);
  }
  lb_status st = lb_session_emit(
      p->session, in, &(lb_watcher){.step = note_step, .user = &a}, &n);
  if (!lb_failed(st)) st = lb_strbuf_status(&a.text);
  snprintf(implementation, sizeof implementation, "%s", lb_strbuf_str(&a.text));
  lb_strbuf_fini(&a.text);
  if (lb_failed(st)) return st;
  lb_session_stats_get(p->session, &stats);
  limber_primitive_info info = {.key = p->text,
                                .implementation = implementation,
                                .tier = lb_tier_name(a.worst),
                                .reusable = a.reusable,
                                .prefer_reusable = handle->prefer.reusable,
                                .prefer_reusable_from = handle->prefer.from,
                                .n_inputs = p->g.n_in,
                                .n_outputs = p->g.n_out,
                                .out_layout = layout_of(&p->g.out[0]),
                                .steps = n.steps,
                                .kernels = n.launches,
                                .scratch_bytes = n.arena_bytes,
                                .packed_bytes = stats.packed_bytes};
  for (uint32_t i = 0; i < p->g.n_in; i++)
    info.in_layouts[i] = layout_of(&p->g.in[i]);
  return lb_options_write("limber_primitive_info", &info, sizeof info, out);
}

limber_status limber_primitive_query(limber_primitive *primitive,
                                     const limber_tensor *inputs,
                                     size_t n_inputs,
                                     limber_primitive_info *out) {
  return lb_report(query(primitive, inputs, n_inputs, out),
                   &primitive->runtime->log);
}
