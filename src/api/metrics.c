// api/metrics.c -- cache statistics as numbers and as Prometheus text, and
// explanations of cache misses.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "api/error.h"
#include "api/options.h"
#include "api/runtime.h"

// -- numbers ------------------------------------------------------------------

static void read_lru(lb_lru *lru, limber_cache_stats *out) {
  lb_lru_stats s;
  lb_lru_count(lru, &s);
  out->capacity = s.capacity;
  out->bytes = s.bytes;
  out->retired_bytes = s.retired_bytes;
}

static void read_slots(lb_slots *slots, limber_cache_stats *out) {
  lb_slots_stats s;
  lb_slots_count(slots, &s);
  out->pack = (limber_layer_stats){
      .hits = s.pack_hits,
      .misses = s.pack_misses,
      .entries = slots->device->n_builtin,
  };
  out->kernels = (limber_layer_stats){
      .hits = s.hits,
      .misses = s.misses,
      .insertions = s.insertions,
      .evictions = s.evictions,
      .entries = s.kernels,
      .bytes = s.kernel_bytes,
  };
  out->slots = s.slots;
  out->slot_bytes = s.bytes;
}

static void read_primitives(lb_cache *cache, limber_cache_stats *out) {
  lb_cache_stats s;
  lb_cache_count(cache, &s);
  out->primitives = (limber_layer_stats){
      .hits = s.hits,
      .misses = s.misses,
      .waits = s.waits,
      .insertions = s.insertions,
      .evictions = s.evictions,
      .entries = s.entries,
      .bytes = s.bytes,
      .build_us = s.build_ns / 1000,
  };
}

static void read_worker(const lb_kernels *k, limber_layer_stats *out) {
  if (!k->service) return;
  lb_kernel_builder_stats kernels = lb_service_count(k->service).kernels;
  out->hits = kernels.compiled;
  out->misses = kernels.compile_failures;
  out->build_us = kernels.build_us;
}

static void read_store(lb_store *store, limber_layer_stats *out) {
  lb_store_stats s;
  lb_store_get_stats(store, &s);
  out->hits = s.hits + s.hits_readonly;
  out->misses = s.misses;
  out->waits = s.refusals;
  out->insertions = s.insertions;
  out->evictions = s.evictions;
  out->corrupt = s.corrupt;
  out->entries = s.entries;
  out->bytes = s.bytes;
  out->load_us = s.get_ns / 1000;
}

static void read_all(lb_shared *s, limber_cache_stats *out) {
  const lb_kernels *k = &s->kernels;
  *out = (limber_cache_stats){0};
  read_lru(&s->lru, out);
  if (k->slots) read_slots(k->slots, out);
  read_primitives(&s->primitives, out);
  if (k->store) read_store(k->store, &out->store);
  read_worker(k, &out->worker);
}

limber_status limber_get_cache_stats(limber_runtime *runtime,
                                     limber_cache_stats *out) {
  limber_runtime *r;
  lb_status st = lb_runtime_of(runtime, &r);
  if (lb_failed(st)) return lb_report(st, NULL);
  limber_cache_stats stats;
  read_all(r->shared, &stats);
  st = lb_options_write("limber_cache_stats", &stats, sizeof stats, out);
  return lb_report(st, &r->log);
}

// -- as text ------------------------------------------------------------------

typedef struct layer {
  const char *name;
  const limber_layer_stats *stats;
} layer;

typedef struct metric {
  const char *name, *help;
  size_t offset;  // in limber_layer_stats
  bool gauge;
} metric;

#define FIELD(name) offsetof(limber_layer_stats, name)
static const metric metrics[] = {
    {"hits_total", "Lookups that hit this layer", FIELD(hits), false},
    {"misses_total", "Lookups that missed this layer", FIELD(misses), false},
    {"waits_total", "Lookups that waited for another thread or process",
     FIELD(waits), false},
    {"insertions_total", "Entries added", FIELD(insertions), false},
    {"evictions_total", "Entries evicted", FIELD(evictions), false},
    {"corrupt_total", "Entries found corrupt and dropped", FIELD(corrupt),
     false},
    {"entries", "Entries at present", FIELD(entries), true},
    {"bytes", "Bytes of these entries", FIELD(bytes), true},
    {"build_microseconds_total", "Time spent compiling and checking",
     FIELD(build_us), false},
    {"load_microseconds_total", "Time spent reading", FIELD(load_us), false},
};

static void put_header(const char *name, const char *help, bool gauge,
                       lb_strbuf *out) {
  lb_strbuf_printf(out,
                   "# HELP limber_cache_%s %s\n# TYPE limber_cache_%s %s\n",
                   name, help, name, gauge ? "gauge" : "counter");
}

static void put_metric(const metric *m, const layer *layers, size_t n,
                       lb_strbuf *out) {
  put_header(m->name, m->help, m->gauge, out);
  for (size_t i = 0; i < n; i++) {
    uint64_t value;
    memcpy(&value, (const char *)layers[i].stats + m->offset, sizeof value);
    lb_strbuf_printf(out, "limber_cache_%s{layer=\"%s\"} %" PRIu64 "\n",
                     m->name, layers[i].name, value);
  }
}

static void put_gauge(const char *name, const char *help, uint64_t value,
                      lb_strbuf *out) {
  put_header(name, help, true, out);
  lb_strbuf_printf(out, "limber_cache_%s %" PRIu64 "\n", name, value);
}

static void put_all(const limber_cache_stats *s, lb_strbuf *out) {
  const layer layers[] = {{"pack", &s->pack},
                          {"kernels", &s->kernels},
                          {"primitives", &s->primitives},
                          {"store", &s->store},
                          {"worker", &s->worker}};
  for (size_t i = 0; i < sizeof metrics / sizeof *metrics; i++)
    put_metric(&metrics[i], layers, sizeof layers / sizeof *layers, out);
  put_gauge("capacity_bytes", "Byte budget for kernels and primitives",
            s->capacity, out);
  put_gauge("kept_bytes", "Bytes charged to the budget by all runtimes",
            s->bytes, out);
  put_gauge("retired_bytes", "Bytes of evicted entries that may be in use",
            s->retired_bytes, out);
  put_gauge("slots", "Kernel slots, filled or empty", s->slots, out);
  put_gauge("slot_bytes", "Bytes of these slots", s->slot_bytes, out);
}

// Copies the text into memory for the caller, and frees `text`.
static lb_status copy_text(lb_strbuf *text, char **out) {
  lb_status st = lb_strbuf_status(text);
  *out = lb_failed(st) ? NULL : strdup(lb_strbuf_str(text));
  if (!lb_failed(st) && !*out) st = lb_oom();
  lb_strbuf_fini(text);
  return st;
}

limber_status limber_metrics(limber_runtime *runtime, char **out) {
  limber_runtime *r;
  *out = NULL;
  lb_status st = lb_runtime_of(runtime, &r);
  if (lb_failed(st)) return lb_report(st, NULL);
  limber_cache_stats stats;
  lb_strbuf text = {0};
  read_all(r->shared, &stats);
  put_all(&stats, &text);
  return lb_report(copy_text(&text, out), &r->log);
}

// -- misses -------------------------------------------------------------------

limber_status limber_explain_miss(limber_runtime *runtime, char **out) {
  limber_runtime *r;
  *out = NULL;
  lb_status st = lb_runtime_of(runtime, &r);
  if (lb_failed(st)) return lb_report(st, NULL);
  lb_strbuf text = {0}, more = {0};
  lb_slots *slots = r->shared->kernels.slots;
  if (slots) lb_status_drop(lb_slots_explain(slots, &text));
  lb_status_drop(lb_cache_explain(&r->shared->primitives, &more));
  if (*lb_strbuf_str(&text) && *lb_strbuf_str(&more))
    lb_strbuf_puts(&text, "\n");
  lb_strbuf_puts(&text, lb_strbuf_str(&more));
  lb_strbuf_fini(&more);
  return lb_report(copy_text(&text, out), &r->log);
}
