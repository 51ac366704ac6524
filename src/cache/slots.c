// cache/slots.c -- the table of slots, by spec and facts.
#include "cache/slots.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *lb_tier_name(lb_tier t) {
  static const char *const names[] = {"reference", "pack", "reusable",
                                      "specialised", "fused"};
  return names[t];
}

lb_status lb_slots_init(lb_slots *s, uint32_t lanes, lb_device *device) {
  *s = (lb_slots){.lanes = lanes, .device = device, .reviews = 1};
  return lb_lock_init(&s->lock);
}

void lb_slots_fini(lb_slots *s) {
  for (size_t i = 0; i < s->map.count; i++) {
    lb_slot *slot = s->map.entries[i].value;
    lb_slots_withdraw(s, slot);
    free(atomic_load(&slot->trial));
    free(atomic_load(&slot->profile));
    free(slot);
  }
  lb_map_fini(&s->map);
  lb_lock_fini(&s->lock);
}

static void count_new(lb_slots *s, bool in_pack) {
  s->stats.pack_hits += in_pack;
  s->stats.pack_misses += !in_pack;
  s->stats.bytes += sizeof(lb_slot);
  s->stats.slots++;
}

static lb_status insert(lb_slots *s, const lb_slot_key *key,
                        const lb_exec *builtin, lb_slot **out) {
  lb_slot *slot = calloc(1, sizeof *slot);
  if (!slot) return lb_oom();
  slot->key = *key;
  slot->in_pack = builtin != NULL;
  if (builtin) slot->pack = *builtin;
  if (builtin) lb_slot_publish(slot, &slot->pack, LB_TIER_PACK);
  lb_status st = lb_map_put(&s->map, &slot->key, sizeof slot->key, slot, NULL);
  if (lb_failed(st)) {
    free(slot);
  } else {
    *out = slot;
    count_new(s, slot->in_pack);
  }
  return st;
}

// *out is NULL if there is no slot and a new one would have no kernel, unless
// `may_be_empty`.
static lb_status find(lb_slots *s, const lb_slot_key *key, bool may_be_empty,
                      lb_slot **out) {
  *out = lb_map_get(&s->map, key, sizeof *key);
  if (*out) return LB_OK;
  lb_exec builtin;
  bool has = lb_device_builtin(s->device, &key->spec, &key->facts, &builtin);
  if (!has && !may_be_empty) return LB_OK;
  return insert(s, key, has ? &builtin : NULL, out);
}

static lb_slot_key key_of(const lb_spec *spec, const lb_facts *facts) {
  lb_slot_key key;
  memset(&key, 0, sizeof key);
  key.spec = *spec;
  key.facts = *facts;
  return key;
}

void *lb_slots_attach(lb_slots *s, _Atomic(void *) *field, size_t size) {
  void *existing = atomic_load_explicit(field, memory_order_acquire);
  if (existing) return existing;
  void *block = calloc(1, size);
  if (!block) return NULL;
  if (!atomic_compare_exchange_strong(field, &existing, block)) {
    free(block);
    return existing;
  }
  atomic_fetch_add_explicit(&s->attached, size, memory_order_relaxed);
  return block;
}

const char *lb_slot_text(const lb_slot *slot, char *buf, size_t cap) {
  lb_strbuf text = {0};
  lb_spec_print(&slot->key.spec, &text);
  lb_strbuf_puts(&text, " | ");
  lb_facts_print(&slot->key.facts, &text);
  snprintf(buf, cap, "%s", lb_strbuf_str(&text));
  lb_strbuf_fini(&text);
  return buf;
}

static void put_text(lb_hub *hub, uint64_t to, const lb_slot *slot,
                     const lb_event *e, const char *before) {
  char text[LB_EVENT_TEXT];
  lb_hub_put(hub, to, e, "%s%s", before, lb_slot_text(slot, text, sizeof text));
}

void lb_slot_emit(lb_hub *hub, const lb_slot *slot, const lb_event *e,
                  const char *fmt, ...) {
  char before[LB_EVENT_TEXT];
  va_list ap;
  if (!lb_hub_listens(hub)) return;
  va_start(ap, fmt);
  vsnprintf(before, sizeof before, fmt, ap);
  va_end(ap);
  uint64_t users = lb_slot_users(slot);
  put_text(hub, users ? users : LB_HUB_ALL, slot, e, before);
}

// -- users -------------------------------------------------------------------

#define ANONYMOUS (UINT64_C(1) << 63)  // the bit of an anonymous user

static uint64_t bit_of(lb_slot_user user) {
  return user.bit ? user.bit : ANONYMOUS;
}

// Makes the slot wanted. `before`: the users until now; a new user gets an
// event.
static void want(lb_slots *s, lb_slot_user user, lb_slot *slot,
                 uint64_t before) {
  static const lb_event e = {.kind = LB_EVENT_KERNEL_REQUESTED,
                             .reason = LB_REASON_NO_KERNEL};
  atomic_store(&slot->wanted, true);
  if (!(before & user.bit) && lb_hub_listens(s->hub))
    put_text(s->hub, user.bit, slot, &e, "");
}

// Returns true if the bit was not set.
static bool add_bit(_Atomic uint64_t *bits, uint64_t bit) {
  return !(atomic_load_explicit(bits, memory_order_relaxed) & bit) &&
         !(atomic_fetch_or(bits, bit) & bit);
}

bool lb_slots_adopt(lb_slots *s, lb_slot_user user, lb_slot *slot) {
  uint64_t before = lb_slot_users(slot);
  bool first = add_bit(&slot->planned, bit_of(user));
  if (first) want(s, user, slot, before);
  return first;
}

bool lb_slots_use(lb_slots *s, lb_slot_user user, lb_slot *slot) {
  bool first = lb_slots_adopt(s, user, slot);
  bool hit = lb_slot_tier(slot) > LB_TIER_PACK;
  atomic_fetch_add_explicit(hit ? &s->hits : &s->misses, 1,
                            memory_order_relaxed);
  if (!hit) atomic_store_explicit(&s->missed, slot, memory_order_relaxed);
  return first;
}

lb_status lb_slots_intern(lb_slots *s, lb_slot_user user, const lb_spec *spec,
                          const lb_facts *facts, lb_slot **out) {
  LB_TRY(lb_slots_add(s, spec, facts, out));
  lb_slots_use(s, user, *out);
  return LB_OK;
}

static void raise_ahead(lb_slot *slot, lb_ahead ahead) {
  int was = atomic_load(&slot->ahead);
  while (was < (int)ahead)
    if (atomic_compare_exchange_weak(&slot->ahead, &was, (int)ahead)) return;
}

bool lb_slot_wants_variants(const lb_slot *slot, lb_slot_user user) {
  return !(atomic_load_explicit(&slot->expected, memory_order_relaxed) &
           bit_of(user)) ||
         atomic_load_explicit(&slot->ahead, memory_order_relaxed) <
             (int)user.ahead;
}

static void want_one(lb_slots *s, lb_slot_user user, lb_slot *slot) {
  uint64_t before = lb_slot_users(slot);
  raise_ahead(slot, user.ahead);
  add_bit(&slot->expected, bit_of(user));
  want(s, user, slot, before);
}

void lb_slots_want_variants(lb_slots *s, lb_slot_user user, lb_slot *slot,
                            lb_slot *const *variants, int n) {
  if (!lb_slot_wants_variants(slot, user)) return;
  want_one(s, user, slot);
  for (int i = 0; i < n; i++) want_one(s, user, variants[i]);
  atomic_store(&s->more_expected, true);
}

void lb_slots_expect(lb_slots *s, lb_slot_user user, lb_slot *slot) {
  raise_ahead(slot, user.ahead);
  lb_slots_adopt(s, user, slot);
  atomic_store(&s->more_expected, true);
}

// Another user may be added concurrently: whichever of the two stores `wanted`
// last, it ends up true.
static void forget_one(lb_slot *slot, uint64_t bit) {
  atomic_fetch_and(&slot->planned, ~bit);
  atomic_fetch_and(&slot->expected, ~bit);
  if (lb_slot_users(slot)) return;
  atomic_store(&slot->ahead, LB_AHEAD_UNKNOWN);
  atomic_store(&slot->wanted, false);
  if (atomic_load(&slot->planned) | atomic_load(&slot->expected))
    atomic_store(&slot->wanted, true);
}

void lb_slots_forget(lb_slots *s, uint64_t bit) {
  lb_slot *slot;
  for (size_t i = 0; bit && (slot = lb_slots_at(s, i)); i++)
    if (lb_slot_users(slot) & bit) forget_one(slot, bit);
}

lb_status lb_slots_try_pack(lb_slots *s, const lb_spec *spec,
                            const lb_facts *facts, lb_slot **out) {
  lb_slot_key key = key_of(spec, facts);
  lb_lock_take(&s->lock);
  lb_status st = find(s, &key, false, out);
  lb_lock_give(&s->lock);
  if (!lb_failed(st) && *out && !(*out)->in_pack) *out = NULL;
  return st;
}

lb_status lb_slots_add(lb_slots *s, const lb_spec *spec, const lb_facts *facts,
                       lb_slot **out) {
  lb_slot_key key = key_of(spec, facts);
  lb_lock_take(&s->lock);
  lb_status st = find(s, &key, true, out);
  lb_lock_give(&s->lock);
  return st;
}

size_t lb_slots_wanted(lb_slots *s, uint64_t bits) {
  size_t n = 0;
  lb_lock_take(&s->lock);
  for (size_t i = 0; i < s->map.count; i++) {
    const lb_slot *slot = s->map.entries[i].value;
    n += lb_slot_users(slot) & bits && atomic_load(&slot->wanted);
  }
  lb_lock_give(&s->lock);
  return n;
}

lb_slot *lb_slots_at(lb_slots *s, size_t i) {
  lb_lock_take(&s->lock);
  lb_slot *slot = i < s->map.count ? s->map.entries[i].value : NULL;
  lb_lock_give(&s->lock);
  return slot;
}

// -- compiled kernels --------------------------------------------------------

typedef struct lb_slot_item {
  lb_lru_item base;
  lb_slot *slot;    // borrowed; not used once the item is retired
  lb_slots *slots;  // borrowed; likewise
  lb_exec *exec;    // owned
} slot_item;

// Runs that started before may still find that nothing is pending, but they
// record the counter that they started with.
static void request_review(lb_slots *s) {
  atomic_fetch_add_explicit(&s->reviews, 1, memory_order_release);
}

static void revert(lb_slots *s, lb_slot *slot) {
  lb_trial *trial = lb_slot_trial(slot);
  slot->item = NULL;
  if (trial) lb_trial_end(trial);
  lb_slot_publish(slot, lb_slot_builtin(slot),
                  slot->in_pack ? LB_TIER_PACK : LB_TIER_REFERENCE);
  request_review(s);
}

// Runs that use the slot again see that its kernel was evicted, and make it
// wanted.
static void hide(lb_lru_item *base) {
  const slot_item *x = (slot_item *)base;
  lb_slot *slot = x->slot;
  lb_event e = {.kind = LB_EVENT_KERNEL_EVICTED,
                .reason = LB_REASON_BUDGET,
                .value = (int64_t)base->bytes};
  x->slots->evictions++;
  atomic_fetch_add_explicit(&slot->evicted, 1, memory_order_relaxed);
  atomic_store_explicit(&slot->wanted, false, memory_order_relaxed);
  revert(x->slots, slot);
  lb_slot_emit(x->slots->hub, slot, &e, "%s", "");
}

static void drop(lb_lru_item *base) {
  slot_item *x = (slot_item *)base;
  lb_exec_release(x->exec);
  free(x);
}

static slot_item *new_item(lb_slots *s, lb_slot *slot,
                           const lb_slot_code *code) {
  slot_item *x = malloc(sizeof *x);
  if (!x) return NULL;
  *x = (slot_item){.base = {.bytes = code->exec->bytes + sizeof *x,
                            .used = &slot->used,
                            .hide = hide,
                            .drop = drop},
                   .slot = slot,
                   .slots = s,
                   .exec = code->exec};
  return x;
}

// The previous kernel is hidden by publishing the new one. `trial` is prepared;
// NULL: the kernel is not on trial.
static bool put(lb_slots *s, lb_slot *slot, slot_item *x,
                const lb_slot_code *code, lb_trial *trial) {
  slot_item *previous = slot->item;
  lb_lru *lru = s->lru;
  if (x->base.bytes > lru->stats.capacity) return false;
  slot->item = x;
  lb_slot_publish(slot, code->exec, code->tier);
  if (trial) {
    lb_trial_open(trial);
    request_review(s);
  }
  if (previous) lb_lru_remove(lru, &previous->base);
  return lb_lru_try_put(lru, &x->base);
}

lb_status lb_slots_publish(lb_slots *s, lb_slot *slot, const lb_slot_code *code,
                           bool *kept) {
  slot_item *x = new_item(s, slot, code);
  size_t bytes = code->exec->bytes;
  lb_trial *trial = NULL;
  *kept = false;
  if (code->on_trial) trial = lb_slots_attach(s, &slot->trial, sizeof *trial);
  if (!x || (code->on_trial && !trial)) {
    free(x);
    lb_exec_release(code->exec);
    return lb_oom();
  }
  if (trial) lb_trial_prepare(trial);
  lb_lock_take(&s->lru->lock);
  *kept = put(s, slot, x, code, trial);
  s->insertions += *kept;
  lb_lock_give(&s->lru->lock);
  lb_event e = {.kind = LB_EVENT_KERNEL_PUBLISHED,
                .reason = LB_REASON_BETTER,
                .value = (int64_t)bytes};
  if (*kept) lb_slot_emit(s->hub, slot, &e, "%s: ", lb_tier_name(code->tier));
  if (!*kept) drop(&x->base);
  lb_lru_collect(s->lru);
  return LB_OK;
}

void lb_slots_withdraw(lb_slots *s, lb_slot *slot) {
  if (!s->lru) return;
  lb_lock_take(&s->lru->lock);
  slot_item *previous = slot->item;
  if (previous) {
    revert(s, slot);
    lb_lru_remove(s->lru, &previous->base);
  }
  lb_lock_give(&s->lru->lock);
  if (previous) lb_lru_collect(s->lru);
}

bool lb_slots_has_capacity(lb_slots *s) {
  return s->lru && lb_lru_capacity(s->lru) > 0;
}

// -- statistics and explanations ---------------------------------------------

// Compiled kernels are guarded by the lock of the lb_lru; the two locks are
// taken one after the other, never both.
static void count_kernels(lb_slots *s, lb_slots_stats *out) {
  lb_slot *slot;
  for (size_t i = 0; (slot = lb_slots_at(s, i)); i++) {
    lb_lock_take(&s->lru->lock);
    out->kernels += slot->item != NULL;
    out->kernel_bytes += slot->item ? slot->item->base.bytes : 0;
    lb_lock_give(&s->lru->lock);
  }
  lb_lock_take(&s->lru->lock);
  out->insertions = s->insertions;
  out->evictions = s->evictions;
  lb_lock_give(&s->lru->lock);
}

void lb_slots_count(lb_slots *s, lb_slots_stats *out) {
  lb_lock_take(&s->lock);
  *out = s->stats;
  lb_lock_give(&s->lock);
  out->bytes += atomic_load_explicit(&s->attached, memory_order_relaxed);
  out->hits = atomic_load_explicit(&s->hits, memory_order_relaxed);
  out->misses = atomic_load_explicit(&s->misses, memory_order_relaxed);
  if (s->lru) count_kernels(s, out);
}

static int similarity(const lb_slot *a, const lb_slot *b) {
  if (memcmp(&a->key.spec, &b->key.spec, sizeof a->key.spec) == 0) return 2;
  return a->key.spec.form == b->key.spec.form;
}

static void print_facts(const lb_slot *slot, lb_strbuf *out) {
  size_t n = strlen(lb_strbuf_str(out));
  lb_facts_print(&slot->key.facts, out);
  if (strlen(lb_strbuf_str(out)) == n) lb_strbuf_puts(out, "none");
}

static void print_miss(const lb_slot *missed, const lb_slot *nearest,
                       lb_strbuf *out) {
  lb_spec_print(&missed->key.spec, out);
  if (!nearest) {
    lb_strbuf_puts(out, ": nothing of this form is compiled");
    return;
  }
  if (similarity(missed, nearest) == 2) {
    lb_strbuf_puts(out, ": facts: ");
    print_facts(missed, out);
    lb_strbuf_puts(out, " not ");
    print_facts(nearest, out);
    return;
  }
  lb_strbuf_puts(out, ": spec: not ");
  lb_spec_print(&nearest->key.spec, out);
}

lb_status lb_slots_explain(lb_slots *s, lb_strbuf *out) {
  const lb_slot *nearest = NULL;
  int best = 0;
  lb_lock_take(&s->lock);
  const lb_slot *missed = atomic_load(&s->missed);
  for (size_t i = 0; missed && i < s->map.count; i++) {
    const lb_slot *slot = s->map.entries[i].value;
    if (slot == missed || lb_slot_tier(slot) <= LB_TIER_PACK) continue;
    int similar = similarity(missed, slot);
    if (similar <= best) continue;
    nearest = slot;
    best = similar;
  }
  if (missed && lb_slot_tier(missed) <= LB_TIER_PACK)
    print_miss(missed, nearest, out);
  lb_lock_give(&s->lock);
  return lb_strbuf_status(out);
}
