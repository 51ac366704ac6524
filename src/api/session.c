// api/session.c -- loads a model, describes it, and returns its statistics.
#include "api/session.h"

#include <stdlib.h>
#include <string.h>

#include "api/describe.h"
#include "api/env.h"
#include "api/error.h"
#include "api/options.h"
#include "base/caller.h"
#include "base/clock.h"
#include "compile/queue.h"
#include "spec/target.h"
#include "graph/pass.h"

#define DTYPE(id, text, bytes, cls) \
  _Static_assert((int)LIMBER_##id == (int)LB_##id, "dtypes are equal");
LB_DTYPES(DTYPE)
_Static_assert(LIMBER_MAX_RANK == LB_MAX_RANK, "ranks agree");

const char *limber_version(void) { return LIMBER_VERSION; }

size_t limber_dtype_size(limber_dtype dtype) {
  return lb_dtype_size((lb_dtype)dtype);
}

const char *limber_dtype_name(limber_dtype dtype) {
  return lb_dtype_name((lb_dtype)dtype);
}

// -- loading -----------------------------------------------------------------

typedef struct source {
  const char *path;  // NULL: bytes
  lb_span bytes;
} source;

static lb_status add_port(limber_session *s, lb_ports *ports, const char *name,
                          const lb_vinfo *info) {
  limber_value_info *port = &ports->infos[ports->n++];
  LB_TRY(lb_describe(&s->arena, name, info, port));
  return lb_map_puts(&ports->by_name, name, port);
}

static lb_status add_ports(limber_session *s) {
  const lb_graph *g = s->model.graph;
  const lb_region *r = g->main;
  s->inputs.infos = lb_arena_new(&s->arena, limber_value_info, r->n_params);
  s->outputs.infos = lb_arena_new(&s->arena, limber_value_info, r->n_results);
  if (!s->inputs.infos || !s->outputs.infos) return lb_oom();
  for (uint32_t i = 0; i < r->n_params; i++)
    LB_TRY(add_port(s, &s->inputs, r->params[i]->name, &r->params[i]->info));
  for (uint32_t i = 0; i < r->n_results; i++) {
    lb_vinfo info = r->results[i]->info;
    if (!info.dtype && s->model.outputs) info.dtype = s->model.outputs[i].dtype;
    LB_TRY(add_port(s, &s->outputs, g->output_names[i], &info));
  }
  return LB_OK;
}

static lb_status add_properties(limber_session *s) {
  uint32_t n = s->model.n_props;
  s->properties = lb_arena_new(&s->arena, limber_property, n);
  if (!s->properties) return lb_oom();
  for (uint32_t i = 0; i < n; i++)
    s->properties[i] =
        (limber_property){s->model.props[i].key, s->model.props[i].value};
  return LB_OK;
}

static lb_status check_options(const limber_session_options *o) {
  if (o->loop_limit < 0)
    return lb_error(LB_INVALID, "loop_limit must not be negative");
  if (o->optimize < -1 || o->optimize > 0)
    return lb_error(LB_INVALID, "optimize: %d is neither 0 nor -1",
                    o->optimize);
  if (o->load_warmup < -1 || o->load_warmup > 0)
    return lb_error(LB_INVALID, "load_warmup: %d is neither 0 nor -1",
                    o->load_warmup);
  if (o->deterministic < 0 || o->deterministic > 1)
    return lb_error(LB_INVALID, "deterministic: %d is neither 0 nor 1",
                    o->deterministic);
  if (o->prefer_reusable_kernels < -1 || o->prefer_reusable_kernels > 1)
    return lb_error(LB_INVALID, "prefer_reusable_kernels: %d is not -1, 0 or 1",
                    o->prefer_reusable_kernels);
  if (o->reference < 0 || o->reference > 1)
    return lb_error(LB_INVALID, "reference: %d is neither 0 nor 1",
                    o->reference);
  if (o->skip < -1 || o->skip > 1)
    return lb_error(LB_INVALID, "skip: %d is not -1, 0 or 1", o->skip);
  LB_TRY(lb_check_compile(o->compile));
  return lb_check_compile_ops(o->compile_ops);
}

// The size of a processor's L2 cache, or 1 MB if it is unknown.
static size_t l2_bytes(void) {
  size_t l2 = lb_host_caches_get().l2;
  return l2 ? l2 : (size_t)1 << 20;
}

static lb_fusion fusion_of(const lb_log *log) {
  static const char *const words[] = {"static", "live"};
  return lb_env_choice("LIMBER_FUSION", words, log) ? LB_FUSION_LIVE
                                                    : LB_FUSION_STATIC;
}

static bool tries_fusions(const lb_log *log) {
  static const char *const words[] = {"on", "off"};
  return !lb_env_choice("LIMBER_FUSION_TRIALS", words, log);
}

static unsigned verify_of(const lb_log *log) {
  const char *text = getenv("LIMBER_VERIFY");
  if (!text || !*text) return 0;
  char *end;
  long n = strtol(text, &end, 10);
  if (!*end && n >= 1 && n <= 1000000) return (unsigned)n;
  lb_log_line(log, LB_LOG_WARN,
              "LIMBER_VERIFY=%s is ignored: it must be a number from 1 to "
              "1000000",
              text);
  return 0;
}

static lb_status load(limber_session *s, const source *from,
                      const limber_session_options *o) {
  lb_onnx_options how = {&s->runtime->log, o->copy_weights != 0};
  int64_t start = lb_clock_ns();
  LB_TRY(check_options(o));
  s->prefer =
      lb_prefer_of(o->prefer_reusable_kernels, "session", s->runtime->prefer);
  s->policy = lb_policy_of(s->runtime->policy, o);
  const lb_kernels *kernels = &s->runtime->shared->kernels;
  LB_TRY(from->path
             ? lb_onnx_load(from->path, &how, &s->model)
             : lb_onnx_parse(from->bytes, o->directory, &how, &s->model));
  lb_session_options options = {
      .pool = s->runtime->pool,
      .alloc = &s->runtime->alloc,
      .plan_bytes = (size_t)o->plan_bytes,
      .memory_limit = (size_t)o->memory_limit,
      .loop_limit = o->loop_limit,
      .passes_off = o->optimize < 0 ? LB_PASS_ALL : s->runtime->passes_off,
      .log = &s->runtime->log,
      .slots = o->reference ? NULL : kernels->slots,
      .user = lb_seat_bit(s->runtime->seat),
      .l2_bytes = l2_bytes(),
      .events = s->runtime->events,
      .deterministic = o->deterministic || s->runtime->deterministic,
      .reusable = s->prefer.reusable,
      .checks = s->runtime->checks,
      .no_skip = o->skip ? o->skip < 0 : s->runtime->no_skip,
      .fusion = fusion_of(&s->runtime->log),
      .fusion_untried = !tries_fusions(&s->runtime->log),
      .verify = verify_of(&s->runtime->log),
      .service = o->reference ? NULL : kernels->service,
      .quiet = s->policy.quiet,
      .critical = s->policy.critical,
      .compile_threshold = s->policy.compile_threshold,
  };
  LB_TRY(lb_session_new(s->model.graph, &options, &s->session));
  // Packed weights are not read from the mapped file any more.
  for (uint32_t i = 0; i < s->model.n_files; i++)
    lb_file_drop_pages(&s->model.files[i]);
  LB_TRY(add_ports(s));
  LB_TRY(add_properties(s));
  LB_TRY(lb_declared_check_model(s));
  if (!o->load_warmup)
    lb_session_load_warmup(s->session, lb_clock_ns() - start);
  return LB_OK;
}

static lb_status session_new(limber_runtime *runtime, const source *from,
                             const limber_session_options *options,
                             limber_session **out) {
  limber_session_options o;
  LB_TRY(lb_options_read("limber_session_options", options, sizeof o, &o));
  limber_session *s = calloc(1, sizeof *s);
  if (!s) return lb_oom();
  s->runtime = runtime;
  lb_arena_init(&s->arena, 4096);
  lb_status st = load(s, from, &o);
  if (lb_failed(st)) {
    limber_session_close(s);
  } else {
    *out = s;
  }
  return st;
}

static limber_status open_any(limber_runtime *runtime, const source *from,
                              const limber_session_options *options,
                              limber_session **out) {
  limber_runtime *r;
  *out = NULL;
  limber_status status = lb_report(lb_runtime_of(runtime, &r), NULL);
  if (status) return status;
  return lb_report(session_new(r, from, options, out), &r->log);
}

limber_status limber_session_open(limber_runtime *runtime, const char *path,
                                  const limber_session_options *options,
                                  limber_session **out) {
  return open_any(runtime, &(source){.path = path}, options, out);
}

limber_status limber_session_open_memory(limber_runtime *runtime,
                                         const void *bytes, size_t size,
                                         const limber_session_options *options,
                                         limber_session **out) {
  return open_any(runtime, &(source){.bytes = {bytes, size}}, options, out);
}

void limber_session_close(limber_session *s) {
  if (!s) return;
  lb_session_free(s->session);
  lb_model_fini(&s->model);
  lb_map_fini(&s->inputs.by_name);
  lb_map_fini(&s->outputs.by_name);
  lb_arena_fini(&s->arena);
  free(s);
}

// -- descriptions and statistics ---------------------------------------------

size_t limber_session_inputs(const limber_session *session,
                             const limber_value_info **out) {
  *out = session->inputs.infos;
  return session->inputs.n;
}

size_t limber_session_outputs(const limber_session *session,
                              const limber_value_info **out) {
  *out = session->outputs.infos;
  return session->outputs.n;
}

limber_status limber_session_model(const limber_session *session,
                                   limber_model_info *out) {
  const lb_model *m = &session->model;
  limber_model_info info = {
      .ir_version = m->ir_version,
      .opset = m->opset,
      .model_version = m->model_version,
      .producer_name = m->producer_name,
      .producer_version = m->producer_version,
      .domain = m->domain,
      .description = m->description,
      .graph_name = m->graph_name,
      .properties = session->properties,
      .n_properties = m->n_props,
      .weight_bytes = (uint64_t)m->weight_bytes,
      .nodes = m->graph->n_nodes,
  };
  return lb_report(
      lb_options_write("limber_model_info", &info, sizeof info, out),
      &session->runtime->log);
}

limber_status limber_session_settle(limber_session *session, double seconds) {
  const limber_runtime *r = session->runtime;
  return lb_report(
      lb_session_settle(session->session, seconds, lb_seat_bit(r->seat)),
      &r->log);
}

// Counts the slots that plans of the runtime requested, by tier.
static void count_tiers(lb_slots *slots, uint64_t user, limber_stats *out) {
  _Static_assert((int)LIMBER_TIER_FUSED == (int)LB_TIER_FUSED, "one to one");
  const lb_slot *slot;
  for (size_t i = 0; slots && (slot = lb_slots_at(slots, i)); i++) {
    if (!(lb_slot_users(slot) & user) || !atomic_load(&slot->wanted)) continue;
    out->kernels_by_tier[lb_slot_tier(slot)]++;
    out->kernels_specialised += !lb_facts_reusable(&slot->key.facts);
  }
}

// Counts the requested kernels that are still served by the pack or a cover.
static uint64_t count_pending(const lb_kernels *k, uint64_t user,
                              bool critical) {
  const lb_slot *slot;
  uint64_t n = 0;
  for (size_t i = 0; k->service && (slot = lb_slots_at(k->slots, i)); i++)
    n += lb_slot_is_pending(slot) && lb_slot_users(slot) & user &&
         (!critical || lb_spec_is_critical(&slot->key.spec));
  return n;
}

// Counts the kernels that are queued or being compiled.
static uint64_t count_queued(const lb_kernels *k, uint64_t user) {
  const lb_slot *slot;
  uint64_t n = 0;
  for (size_t i = 0; k->service && (slot = lb_slots_at(k->slots, i)); i++)
    n += lb_slot_users(slot) & user && lb_slot_is_queued(slot);
  return n;
}

static uint64_t count_trials(const lb_kernels *k) {
  const lb_slot *slot;
  uint64_t n = 0;
  for (size_t i = 0; k->service && (slot = lb_slots_at(k->slots, i)); i++)
    n += lb_slot_trial_state(slot) != LB_TRIAL_NONE;
  return n;
}

static limber_stats runtime_stats(const limber_runtime *r, bool critical) {
  lb_service_stats k = {0};
  const lb_kernels *kernels = &r->shared->kernels;
  uint64_t user = lb_seat_bit(r->seat);
  if (kernels->service) k = lb_service_count(kernels->service);
  limber_stats stats = {
      .kernels_requested =
          kernels->slots ? lb_slots_wanted(kernels->slots, user) : 0,
      .kernels = k.kernels.compiled,
      .kernels_failed = k.kernels.compile_failures,
      .code_bytes = k.kernels.code_bytes,
      .kernels_pending = count_pending(kernels, user, critical),
      .kernels_queued = count_queued(kernels, user),
      .worker_failures = k.failures,
      .compile_us_on_callers = lb_detour_us(),
      .kernels_on_trial = count_trials(kernels),
      .kernels_kept = k.kernels.kept,
      .kernels_demoted = k.kernels.demoted,
  };
  count_tiers(kernels->slots, user, &stats);
  stats.state = stats.kernels_pending ? LIMBER_READY : LIMBER_SETTLED;
  return stats;
}

limber_status limber_runtime_stats(limber_runtime *runtime, limber_stats *out) {
  limber_runtime *r;
  lb_status st = lb_runtime_of(runtime, &r);
  if (lb_failed(st)) return lb_report(st, NULL);
  limber_stats stats = runtime_stats(r, r->policy.critical);
  return lb_report(lb_options_write("limber_stats", &stats, sizeof stats, out),
                   &r->log);
}

limber_status limber_session_stats(limber_session *session, limber_stats *out) {
  lb_session_stats s;
  lb_session_stats_get(session->session, &s);
  limber_stats stats =
      runtime_stats(session->runtime, session->policy.critical);
  stats.runs = s.runs;
  stats.plans_built = s.plans_built;
  stats.plans_evicted = s.plans_evicted;
  stats.ragged_runs = s.ragged_runs;
  stats.plans = s.plans;
  stats.plan_bytes = s.plan_bytes;
  stats.arena_bytes = s.arena_bytes;
  stats.packed_bytes = s.packed_bytes;
  stats.prefer_reusable_kernels = session->prefer.reusable;
  stats.prefer_reusable_from = session->prefer.from;
  return lb_report(lb_options_write("limber_stats", &stats, sizeof stats, out),
                   &session->runtime->log);
}

limber_status limber_session_kernel(limber_session *session, size_t i,
                                    limber_kernel_info *out) {
  const lb_kernels *kernels = &session->runtime->shared->kernels;
  lb_compile_record b;
  if (!kernels->service || !lb_service_compile_record(kernels->service, i, &b))
    return lb_report(
        lb_error(LB_INVALID, "kernel %zu has not been compiled", i), NULL);
  limber_kernel_info info = {.name = b.name,
                             .text = b.text,
                             .error = b.error,
                             .compile_us = b.compile_us,
                             .check_us = b.check_us,
                             .code_bytes = b.code_bytes};
  return lb_report(
      lb_options_write("limber_kernel_info", &info, sizeof info, out),
      &session->runtime->log);
}

limber_status limber_session_dump(limber_session *session, char **out) {
  lb_strbuf text = {0};
  lb_graph_dump_flags(session->model.graph, &text);
  lb_status st = lb_strbuf_status(&text);
  *out = lb_failed(st) ? NULL : strdup(lb_strbuf_str(&text));
  if (!lb_failed(st) && !*out) st = lb_oom();
  lb_strbuf_fini(&text);
  return lb_report(st, &session->runtime->log);
}

void limber_string_free(char *text) { free(text); }
