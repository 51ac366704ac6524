// api/primitive.c -- creates, caches, executes and describes primitives.
#include "api/primitive.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/error.h"
#include "api/options.h"
#include "api/session.h"
#include "graph/pass.h"

// Estimated size of a small session's tables: symbols, sizes, specs.
#define TABLE_BYTES ((size_t)2 << 10)

// Plan budget of one primitive; plans of further shapes are built again.
#define PLAN_BYTES ((size_t)4 << 20)

// The settings in effect: those of the runtime where the attributes leave them
// open.
typedef struct settings {
  uint64_t passes_off;
  lb_policy policy;
  int32_t deterministic, reusable, reserved;
} settings;
_Static_assert(sizeof(settings) == 32, "no padding: it is part of a key");

// A request for a primitive, with its cache key.
typedef struct primitive_request {
  limber_runtime *runtime;
  const lb_desc *desc;
  lb_prefer prefer;
  settings settings;
  size_t key_size, cache_size;
  uint8_t key[LB_KEY_MAX + sizeof(settings)];
} primitive_request;

static void primitive_request_init(primitive_request *q, limber_runtime *r,
                                   const lb_desc *d) {
  q->runtime = r;
  q->desc = d;
  q->prefer = lb_prefer_of(d->attr->reusable, "attribute", r->prefer);
  q->settings =
      (settings){.passes_off = r->passes_off,
                 .policy = r->policy,
                 .deterministic = d->attr->deterministic || r->deterministic,
                 .reusable = q->prefer.reusable};
  q->key_size = lb_desc_key(d, q->key);
  memcpy(q->key + q->key_size, &q->settings, sizeof q->settings);
  q->cache_size = q->key_size + sizeof q->settings;
}

// -- building a primitive ----------------------------------------------------

static void retain(lb_primitive *p) { lb_ref_retain(&p->ref); }

static void release(lb_primitive *p) {
  if (!p || !lb_ref_release(&p->ref)) return;
  lb_session_free(p->session);
  lb_primitive_graph_fini(&p->g);
  free(p->text);
  free(p->key);
  free(p);
}

// Permutes dims or strides from ONNX order, [batch, channels, spatial...], to
// [batch, spatial..., channels]. dims_to_onnx_order does the reverse.
static void to_channels_last(int rank, int64_t *of) {
  int64_t channels = of[1];
  for (int i = 1; i < rank - 1; i++) of[i] = of[i + 1];
  of[rank - 1] = channels;
}

static void dims_to_onnx_order(lb_tensor *t) {
  int64_t channels = t->dims[t->rank - 1];
  for (int i = t->rank - 1; i > 1; i--) t->dims[i] = t->dims[i - 1];
  t->dims[1] = channels;
}

// Returns the inputs with the dims of the graph's parameters, which must all be
// numbers.
static void declared_inputs(const lb_primitive *p, lb_tensor *in) {
  for (uint32_t i = 0; i < p->g.n_in; i++) {
    const lb_vinfo *info = &p->g.graph->main->params[i]->info;
    in[i] = (lb_tensor){.dtype = info->dtype, .rank = info->rank};
    for (int k = 0; k < info->rank; k++) in[i].dims[k] = info->dims[k].k;
    lb_tensor_dense(&in[i]);
  }
}

static lb_status prepare(lb_primitive *p, const primitive_request *q) {
  const lb_desc *d = q->desc;
  const lb_kernels *k = &p->shared->kernels;
  lb_session_options o = {
      .plan_bytes = PLAN_BYTES,
      .slots = d->attr->reference ? NULL : k->slots,
      .service = d->attr->reference ? NULL : k->service,
      .quiet = q->settings.policy.quiet,
      .passive = true,  // handles hold the service, not a cached primitive
      .critical = q->settings.policy.critical,
      .compile_threshold = q->settings.policy.compile_threshold,
      .passes_off = d->attr->reference ? LB_PASS_ALL : q->settings.passes_off,
      .log = &p->shared->log,
      .deterministic = q->settings.deterministic,
      .reusable = q->settings.reusable,
  };
  lb_session_stats stats;
  lb_plan_counts counts;
  lb_tensor in[LB_MAX_PORTS];
  LB_TRY(lb_primitive_graph_new(d, &p->g));
  LB_TRY(lb_session_new(p->g.graph, &o, &p->session));
  p->runtime_dims = lb_desc_has_runtime_dims(d);
  p->user_scratch = d->attr->user_scratch != 0;
  declared_inputs(p, in);
  if (!p->runtime_dims) LB_TRY(lb_session_plan(p->session, in, NULL, &counts));
  lb_session_stats_get(p->session, &stats);
  p->bytes = sizeof *p + TABLE_BYTES + p->cache_size + strlen(p->text) +
             stats.own_bytes + stats.packed_bytes + p->g.graph->arena.used;
  return LB_OK;
}

static lb_status copy_key(lb_primitive *p, const primitive_request *q) {
  p->key_size = q->key_size;
  p->cache_size = q->cache_size;
  p->key = malloc(p->cache_size);
  if (!p->key) return lb_oom();
  memcpy(p->key, q->key, p->cache_size);
  return LB_OK;
}

static lb_status build(const primitive_request *q, lb_primitive **out) {
  lb_strbuf text = {0};
  LB_TRY(lb_desc_check(q->desc));
  lb_primitive *p = calloc(1, sizeof *p);
  if (!p) return lb_oom();
  lb_ref_init(&p->ref);
  p->shared = q->runtime->shared;
  lb_desc_print(q->desc, &text);
  lb_status st = lb_strbuf_status(&text);
  p->text = text.data;
  if (!lb_failed(st)) st = copy_key(p, q);
  if (!lb_failed(st)) st = prepare(p, q);
  if (lb_failed(st)) {
    release(p);
  } else {
    *out = p;
  }
  return st;
}

// -- caching -----------------------------------------------------------------

static void cache_retain(void *value) { retain(value); }
// An evicted primitive that a program still holds frees its memory for
// intermediate values, because the budget does not count it any more.
static void cache_release(void *value) {
  lb_primitive *p = value;
  lb_session_trim(p->session);
  release(p);
}
// Bytes of plans and of memory for intermediate values.
static size_t added_bytes(const lb_primitive *p) {
  return lb_session_plan_bytes(p->session) +
         lb_session_scratch_bytes(p->session);
}
static uint64_t cache_bytes(const void *value) {
  const lb_primitive *p = value;
  return p->bytes + added_bytes(p);
}

#define FIELD(name) \
  { #name, offsetof(lb_key_header, name), sizeof(int32_t) }
static const lb_key_field header_fields[] = {
    FIELD(kind),      FIELD(alg),         FIELD(n_in),
    FIELD(n_post),    FIELD(reusable),    FIELD(deterministic),
    FIELD(reference), FIELD(user_scratch)};
static const lb_key_type key_type = {
    header_fields, sizeof header_fields / sizeof *header_fields};

static const lb_cache_type cache_type = {.retain = cache_retain,
                                         .release = cache_release,
                                         .bytes = cache_bytes,
                                         .key = &key_type};

lb_status lb_primitives_init(lb_cache *cache, lb_lru *lru) {
  return lb_cache_init(cache, lru, &cache_type);
}

// Updates the bytes that the cache counts. With runtime dims each new shape
// adds a plan, and an execution that needs more memory for intermediate values
// than earlier ones keeps it.
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

// All handles share the plans, so the runtime of each handle becomes a user of
// the plans' slots.
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

// A key holds only a hash of the constants, so the constants are compared too.
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

static lb_status build_for_cache(void *user, void **out) {
  lb_primitive *p;
  LB_TRY(build(user, &p));
  *out = p;
  return LB_OK;
}

static lb_status find_or_build(primitive_request *q, lb_primitive **out) {
  lb_cache *cache = &q->runtime->shared->primitives;
  void *found;
  LB_TRY(
      lb_cache_get(cache, q->key, q->cache_size, build_for_cache, q, &found));
  *out = found;
  if (same_constants(*out, q->desc)) return LB_OK;
  release(*out);
  *out = NULL;
  return build(q, out);
}

// Returns NULL if no kernels are compiled for it in the background.
static lb_service *service_of(const limber_primitive *p) {
  return p->runtime->policy.quiet ? NULL : p->runtime->shared->kernels.service;
}

static lb_status create(limber_runtime *r, const lb_desc *d,
                        limber_primitive **out) {
  primitive_request q;
  primitive_request_init(&q, r, d);
  limber_primitive *p = calloc(1, sizeof *p);
  if (!p) return lb_oom();
  p->runtime = r;
  p->prefer = q.prefer;
  lb_status st = find_or_build(&q, &p->core);
  if (lb_failed(st)) {
    free(p);
    return st;
  }
  adopt_plans(p);
  if (service_of(p)) lb_service_begin_background(service_of(p));
  *out = p;
  return LB_OK;
}

void limber_primitive_destroy(limber_primitive *primitive) {
  if (!primitive) return;
  if (service_of(primitive)) lb_service_end_background(service_of(primitive));
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
    return lb_error(LB_INVALID,
                    "%zu inputs were given, but the primitive takes %u", n,
                    p->g.n_in);
  for (size_t i = 0; i < n; i++) {
    const lb_port *port = &p->g.in[i];
    lb_status st = lb_api_read_input(&inputs[i], planning, &in[i]);
    if (!lb_failed(st) && port->channels_last && in[i].rank < 3)
      st = lb_error(LB_INVALID,
                    "rank %d, but the layout is channels-last: at least 3",
                    in[i].rank);
    if (lb_failed(st)) return lb_status_note(st, "input '%s'", port->name);
    if (!port->channels_last) continue;
    to_channels_last(in[i].rank, in[i].dims);
    to_channels_last(in[i].rank, in[i].strides);
    if (!inputs[i].strides) lb_tensor_dense(&in[i]);
  }
  return LB_OK;
}

typedef struct results {
  lb_output out[3];
  int64_t strides[3][LB_MAX_RANK];  // of the channels-last outputs
} results;

static lb_status take_outputs(const lb_primitive *p,
                              const limber_tensor *outputs, size_t n,
                              results *r) {
  *r = (results){0};
  if (n > p->g.n_out)
    return lb_error(LB_INVALID,
                    "%zu outputs were requested, but the primitive has %u", n,
                    p->g.n_out);
  for (size_t i = 0; i < n; i++) {
    const lb_port *port = &p->g.out[i];
    lb_output *o = &r->out[i];
    lb_status st = lb_api_read_output(&outputs[i], o);
    if (!lb_failed(st) && o->strides && port->channels_last && o->rank < 3)
      st = lb_error(LB_INVALID,
                    "rank %d, but the layout is channels-last: at least 3",
                    o->rank);
    if (lb_failed(st)) return lb_status_note(st, "output '%s'", port->name);
    if (!o->strides || !port->channels_last) continue;
    memcpy(r->strides[i], o->strides, (size_t)o->rank * sizeof *o->strides);
    to_channels_last(o->rank, r->strides[i]);
    o->strides = r->strides[i];
  }
  return LB_OK;
}

// The operand of a sum may overlap the result, which may be written before all
// of the operand was read. Such an operand is replaced by a copy.
static lb_status copy_overlapping_sum(const limber_primitive *handle,
                                      lb_tensor *in, const lb_output *out,
                                      void **copy) {
  const lb_primitive *p = handle->core;
  *copy = NULL;
  for (uint32_t i = 0; i < p->g.n_in; i++) {
    const char *from = in[i].data, *to = out->data;
    size_t bytes, before;
    if (!p->g.in[i].sum || !to) continue;
    LB_TRY(lb_tensor_reach(&in[i], &bytes, &before));
    from -= before;
    if (from + bytes <= to || to + out->cap <= from) continue;
    lb_tensor copied = in[i];
    lb_tensor_dense(&copied);
    if (!*copy)
      *copy = lb_alloc_get(&handle->runtime->alloc, lb_tensor_bytes(&copied));
    if (!*copy) return lb_oom();
    copied.data = *copy;
    lb_tensor_copy(&in[i], &copied);
    in[i] = copied;
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
  lb_status st = copy_overlapping_sum(handle, in, &out[0], &copy);
  if (!lb_failed(st)) st = lb_session_run_with(p->session, in, out, how);
  lb_alloc_put(&handle->runtime->alloc, copy);
  for (size_t i = 0; !lb_failed(st) && i < n_outputs; i++) {
    if (p->g.out[i].channels_last) dims_to_onnx_order(&out[i].tensor);
    lb_api_write_output(handle->runtime, &out[i], &outputs[i]);
  }
  return st;
}

limber_status limber_primitive_execute(limber_primitive *primitive,
                                       const limber_tensor *inputs,
                                       size_t n_inputs, limber_tensor *outputs,
                                       size_t n_outputs,
                                       const limber_run_options *options) {
  lb_run_how how;
  lb_run_limits limits;
  lb_status st = lb_run_options_read(options, &limits, &how);
  if (primitive->core->user_scratch) how.lends = true;
  how.pool = primitive->runtime->pool;
  how.alloc = &primitive->runtime->alloc;
  if (!lb_failed(st))
    st = execute(primitive, inputs, n_inputs, outputs, n_outputs, &how);
  adopt_plans(primitive);
  count_added(primitive->core);
  return lb_report(st, &primitive->runtime->log);
}

// -- describing --------------------------------------------------------------

static _Thread_local char implementation[8192];  // a longer text is truncated

typedef struct step_summary {
  lb_strbuf text;
  lb_tier slowest;
  bool reusable;
} step_summary;

static lb_status note_step(void *user, const lb_step_event *e) {
  step_summary *a = user;
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
  if (e->tier < a->slowest) a->slowest = e->tier;
  return LB_OK;
}

static limber_layout layout_of(const lb_port *port) {
  return port->channels_last ? LIMBER_LAYOUT_CHANNELS_LAST
                             : LIMBER_LAYOUT_ROW_MAJOR;
}

static lb_status query(const limber_primitive *handle,
                       const limber_tensor *inputs, size_t n_inputs,
                       limber_primitive_info *out) {
  const lb_primitive *p = handle->core;
  lb_tensor in[LB_MAX_PORTS];
  step_summary a = {.slowest = LB_TIER_FUSED, .reusable = true};
  lb_plan_counts n;
  lb_session_stats stats;
  if (inputs) {
    LB_TRY(take_inputs(p, inputs, n_inputs, true, in));
  } else if (p->runtime_dims) {
    return lb_error(LB_INVALID,
                    "the primitive has runtime dims: pass inputs with dims");
  } else {
    declared_inputs(p, in);
  }
  lb_status st = lb_session_plan_watched(
      p->session, in, &(lb_watcher){.step = note_step, .user = &a}, &n);
  if (!lb_failed(st)) st = lb_strbuf_status(&a.text);
  snprintf(implementation, sizeof implementation, "%s", lb_strbuf_str(&a.text));
  lb_strbuf_fini(&a.text);
  if (lb_failed(st)) return st;
  lb_session_stats_get(p->session, &stats);
  limber_primitive_info info = {.key = p->text,
                                .implementation = implementation,
                                .tier = lb_tier_name(a.slowest),
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
