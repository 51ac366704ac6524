// cache/slots_test.c -- slots are shared, wanted, published and evicted.
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on
#include <string.h>

#include "cache/slots.h"
#include "device/cpu/device.h"

static lb_spec spec_of(lb_sop op) {
  lb_spec_builder b;
  lb_spec s;
  lb_spec_begin(&b, LB_FORM_ELTWISE);
  uint8_t x = lb_spec_input(&b, LB_F32, LB_LAYOUT_FULL);
  lb_spec_output(&b, lb_spec_node(&b, op, LB_F32, &x, 1), LB_LAYOUT_FULL);
  assert_false(lb_failed(lb_spec_finish(&b, &s)));
  return s;
}

static lb_slot *intern(lb_slots *t, const lb_spec *s, const lb_facts *f) {
  lb_slot *slot;
  assert_false(lb_failed(lb_slots_intern(t, (lb_slot_user){0}, s, f, &slot)));
  return slot;
}

static void equal_keys_share_a_slot(void **state) {
  (void)state;
  lb_slots t;
  assert_false(lb_failed(lb_slots_init(&t, 16, lb_device_none())));
  lb_spec exp = spec_of(LB_S_EXP), log = spec_of(LB_S_LOG);
  lb_facts none = {0}, tile = {0};
  lb_facts_add(&tile, LB_CHOOSE_TILE, LB_DIM_ROWS, 6);
  lb_slot *a = intern(&t, &exp, &none);
  assert_ptr_equal(intern(&t, &exp, &none), a);
  assert_ptr_not_equal(intern(&t, &log, &none), a);
  assert_ptr_not_equal(intern(&t, &exp, &tile), a);
  assert_ptr_equal(lb_slots_at(&t, 0), a);
  assert_non_null(lb_slots_at(&t, 2));
  assert_null(lb_slots_at(&t, 3));
  assert_int_equal(lb_slots_wanted(&t, LB_HUB_ALL), 3);
  lb_slots_fini(&t);
}

static const lb_exec kernel = {.entry = 1};  // never called

static void a_slot_is_empty_until_published(void **state) {
  (void)state;
  lb_slots t;
  assert_false(lb_failed(lb_slots_init(&t, 16, lb_device_none())));
  lb_spec exp = spec_of(LB_S_EXP);
  lb_slot *s = intern(&t, &exp, &(lb_facts){0});
  assert_true(lb_slot_kernel(s) == NULL);
  assert_int_equal(lb_slot_tier(s), LB_TIER_REFERENCE);
  lb_slot_publish(s, &kernel, LB_TIER_REUSABLE);
  assert_ptr_equal(lb_slot_kernel(s), &kernel);
  assert_int_equal(lb_slot_tier(s), LB_TIER_REUSABLE);
  lb_slots_fini(&t);
}

static void a_cover_creates_no_slot(void **state) {
  (void)state;
  lb_slots t;
  lb_slot *s;
  assert_false(lb_failed(lb_slots_init(&t, 16, lb_device_none())));
  lb_spec exp = spec_of(LB_S_EXP);
  assert_false(lb_failed(lb_slots_try_pack(&t, &exp, &(lb_facts){0}, &s)));
  assert_null(s);
  assert_null(lb_slots_at(&t, 0));
  lb_slot *slot = intern(&t, &exp, &(lb_facts){0});
  assert_false(lb_failed(lb_slots_try_pack(&t, &exp, &(lb_facts){0}, &s)));
  assert_null(s);
  lb_slot_publish(slot, &kernel, LB_TIER_REUSABLE);
  assert_false(lb_failed(lb_slots_try_pack(&t, &exp, &(lb_facts){0}, &s)));
  assert_null(s);  // a compiled kernel may be evicted
  lb_slots_fini(&t);
}

// A pack with one kernel, for exp.
typedef struct small_pack {
  lb_pack header;
  lb_pack_entry entry;
  lb_spec spec;
  uint8_t code[4];
} small_pack;

static void a_slot_starts_with_the_built_in_kernel(void **state) {
  (void)state;
  lb_slots t;
  lb_slot *s;
  lb_spec exp = spec_of(LB_S_EXP), log = spec_of(LB_S_LOG);
  small_pack p = {.header = {.magic = LB_PACK_MAGIC, .n = 1}, .spec = exp};
  p.header.code = offsetof(small_pack, code);
  p.entry.hash = lb_hash(&exp, lb_spec_bytes(&exp));
  p.entry.spec = offsetof(small_pack, spec);
  lb_cpu_device cpu;
  lb_cpu_device_init(&cpu, &p.header, false, NULL);
  assert_false(lb_failed(lb_slots_init(&t, 16, &cpu.base)));
  assert_false(lb_failed(lb_slots_try_pack(&t, &exp, &(lb_facts){0}, &s)));
  assert_non_null(s);
  assert_int_equal(lb_slot_tier(s), LB_TIER_PACK);
  assert_true(lb_slot_kernel(s)->entry == (uintptr_t)p.code);
  assert_int_equal(lb_slots_wanted(&t, LB_HUB_ALL), 0);
  assert_ptr_equal(intern(&t, &exp, &(lb_facts){0}), s);
  assert_int_equal(lb_slots_wanted(&t, LB_HUB_ALL), 1);
  assert_int_equal(lb_slot_tier(intern(&t, &log, &(lb_facts){0})),
                   LB_TIER_REFERENCE);
  lb_slots_fini(&t);
}

// -- compiled kernels --------------------------------------------------------

static int released[8];

static void count_release(lb_exec *exec) { released[exec->entry]++; }

static lb_exec loaded[8];

static lb_exec *load(uintptr_t number, size_t bytes) {
  loaded[number] = (lb_exec){number, bytes, count_release};
  return &loaded[number];
}

static bool publish(lb_slots *t, lb_slot *s, uintptr_t number, size_t bytes) {
  bool kept;
  lb_slot_code code = {.exec = load(number, bytes), .tier = LB_TIER_REUSABLE};
  assert_false(lb_failed(lb_slots_publish(t, s, &code, &kept)));
  return kept;
}

// A run may have seen the kernel before the trial started, and found that
// nothing is pending.
static void a_trial_makes_plans_check_their_slots(void **state) {
  (void)state;
  lb_slots t;
  lb_lru lru;
  bool kept;
  lb_spec exp = spec_of(LB_S_EXP);
  lb_slot_code code = {
      .exec = load(7, 100), .tier = LB_TIER_REUSABLE, .on_trial = true};
  assert_false(lb_failed(lb_slots_init(&t, 16, lb_device_none())));
  assert_false(lb_failed(lb_lru_init(&lru, 1500)));
  t.lru = &lru;
  lb_slot *slot = intern(&t, &exp, &(lb_facts){0});
  unsigned before = atomic_load(&t.reviews);
  assert_false(lb_failed(lb_slots_publish(&t, slot, &code, &kept)));
  assert_true(kept);
  assert_int_equal(lb_slot_trial_state(slot), LB_TRIAL_OPEN);
  assert_true(atomic_load(&t.reviews) > before);
  lb_slots_fini(&t);
  lb_lru_fini(&lru);
}

// Attached blocks start as zeros, there is one per module, and their bytes are
// counted.
static void a_module_attaches_one_block(void **state) {
  (void)state;
  lb_slots t;
  lb_slots_stats before, after;
  lb_spec exp = spec_of(LB_S_EXP);
  assert_false(lb_failed(lb_slots_init(&t, 16, lb_device_none())));
  lb_slot *slot = intern(&t, &exp, &(lb_facts){0});
  lb_slots_count(&t, &before);
  assert_null(lb_slot_trial(slot));
  assert_int_equal(lb_slot_trial_state(slot), LB_TRIAL_NONE);
  char *block = lb_slots_attach(&t, &slot->profile, 24);
  assert_memory_equal(block, (char[24]){0}, 24);
  *block = 1;
  assert_ptr_equal(lb_slots_attach(&t, &slot->profile, 24), block);
  assert_int_equal(*block, 1);
  assert_true(lb_slots_attach(&t, &slot->trial, 8) != block);
  lb_slots_count(&t, &after);
  assert_int_equal(after.bytes, before.bytes + 32);
  lb_slots_fini(&t);
}

static void evicted_slots_become_pending_again(void **state) {
  (void)state;
  lb_slots t;
  lb_lru lru;
  lb_spec exp = spec_of(LB_S_EXP), log = spec_of(LB_S_LOG);
  small_pack p = {.header = {.magic = LB_PACK_MAGIC, .n = 1}, .spec = exp};
  p.header.code = offsetof(small_pack, code);
  p.entry.hash = lb_hash(&exp, lb_spec_bytes(&exp));
  p.entry.spec = offsetof(small_pack, spec);
  lb_cpu_device cpu;
  lb_cpu_device_init(&cpu, &p.header, false, NULL);
  assert_false(lb_failed(lb_slots_init(&t, 16, &cpu.base)));
  assert_false(lb_slots_has_capacity(&t));
  assert_false(lb_failed(lb_lru_init(&lru, 1500)));
  t.lru = &lru;
  assert_true(lb_slots_has_capacity(&t));
  lb_slot *a = intern(&t, &exp, &(lb_facts){0});
  lb_slot *b = intern(&t, &log, &(lb_facts){0});
  assert_true(publish(&t, a, 0, 1000));
  assert_int_equal(lb_slot_tier(a), LB_TIER_REUSABLE);
  assert_true(publish(&t, b, 1, 1000));
  assert_int_equal(lb_slot_tier(a), LB_TIER_PACK);
  assert_true(lb_slot_kernel(a)->entry == (uintptr_t)p.code);
  assert_int_equal(released[0], 1);
  assert_true(publish(&t, a, 2, 1000));
  assert_int_equal(lb_slot_tier(b), LB_TIER_REFERENCE);
  assert_true(lb_slot_kernel(b) == NULL);
  assert_int_equal(atomic_load(&b->evicted), 1);
  assert_false(atomic_load(&b->wanted));
  lb_epoch_reader reader = {0};
  lb_lru_enter(&lru, &reader);
  lb_slot_use(b, &reader);
  lb_lru_leave(&lru, &reader);
  assert_true(atomic_load(&b->wanted));
  assert_false(publish(&t, b, 3, 2000));  // never fits: a is not evicted
  assert_int_equal(released[3], 1);
  assert_int_equal(lb_slot_tier(a), LB_TIER_REUSABLE);
  assert_true(publish(&t, a, 4, 1000));  // replaces the previous kernel
  assert_int_equal(released[2], 1);
  assert_int_equal(released[4], 0);
  lb_slots_stats n;
  lb_slots_count(&t, &n);
  assert_int_equal(n.slots, 2);
  assert_int_equal(n.pack_hits, 1);
  assert_int_equal(n.pack_misses, 1);
  assert_int_equal(n.kernels, 1);
  assert_true(n.kernel_bytes > 1000 && n.kernel_bytes < 1500);
  assert_int_equal(n.insertions, 4);
  assert_int_equal(n.evictions, 2);
  assert_int_equal(n.misses, 2);
  intern(&t, &exp, &(lb_facts){0});
  lb_facts tile = {0};
  lb_facts_add(&tile, LB_CHOOSE_TILE, LB_DIM_ROWS, 6);
  intern(&t, &exp, &tile);
  lb_slots_count(&t, &n);
  assert_int_equal(n.hits, 1);
  assert_int_equal(n.misses, 3);
  lb_strbuf why = {0};
  assert_false(lb_failed(lb_slots_explain(&t, &why)));
  assert_non_null(strstr(lb_strbuf_str(&why), ": facts: rows:6 not none"));
  lb_strbuf_fini(&why);
  lb_slots_withdraw(&t, a);
  assert_int_equal(released[4], 1);
  assert_true(publish(&t, a, 5, 1000));
  lb_slots_fini(&t);
  assert_int_equal(released[5], 1);
  lb_lru_fini(&lru);
}

static void on_event(void *user, const lb_event *e, const char *text) {
  int *n = user;
  n[e->kind]++;
  assert_non_null(strstr(text, "exp"));
}

typedef struct member {
  int received[LB_EVENT_COUNT];
  lb_events *events;
  lb_seat *seat;
  lb_slot_user user;
} member;

static void join(member *m, lb_hub *hub) {
  *m = (member){0};
  assert_false(lb_failed(lb_events_new(on_event, m->received, &m->events)));
  assert_false(
      lb_failed(lb_hub_join(hub, &(lb_member){.events = m->events}, &m->seat)));
  m->user.bit = lb_seat_bit(m->seat);
}

static int received(member *m, lb_event_kind kind) {
  lb_events_flush(m->events);
  return m->received[kind];
}

static void leave(member *m, lb_hub *hub) {
  lb_hub_leave(hub, m->seat);
  lb_events_free(m->events);
}

// Each user gets one event when it requests a slot, and then the events of that
// slot.
static void a_slot_knows_who_uses_it(void **state) {
  (void)state;
  lb_hub hub = {0};
  lb_slots t;
  lb_slot *s;
  member a, b, c;
  lb_spec exp = spec_of(LB_S_EXP);
  lb_event e = {.kind = LB_EVENT_KERNEL_COMPILED};
  assert_false(lb_failed(lb_slots_init(&t, 16, lb_device_none())));
  t.hub = &hub;
  join(&a, &hub);
  join(&b, &hub);
  join(&c, &hub);
  assert_false(
      lb_failed(lb_slots_intern(&t, a.user, &exp, &(lb_facts){0}, &s)));
  assert_false(lb_slots_use(&t, a.user, s));
  assert_true(lb_slots_adopt(&t, b.user, s));
  assert_false(lb_slots_adopt(&t, b.user, s));
  lb_slots_want_variants(&t, b.user, s, NULL, 0);
  lb_slot_emit(&hub, s, &e, "%s", "");
  assert_int_equal(received(&a, LB_EVENT_KERNEL_REQUESTED), 1);
  assert_int_equal(received(&b, LB_EVENT_KERNEL_REQUESTED), 1);
  assert_int_equal(received(&a, LB_EVENT_KERNEL_COMPILED), 1);
  assert_int_equal(received(&b, LB_EVENT_KERNEL_COMPILED), 1);
  assert_int_equal(received(&c, LB_EVENT_KERNEL_REQUESTED), 0);
  assert_int_equal(received(&c, LB_EVENT_KERNEL_COMPILED), 0);
  assert_int_equal(lb_slots_wanted(&t, b.user.bit), 1);
  assert_int_equal(lb_slots_wanted(&t, c.user.bit), 0);
  lb_slots_stats n;
  lb_slots_count(&t, &n);
  assert_int_equal(n.misses, 2);  // adopting is not counted
  leave(&a, &hub);
  leave(&b, &hub);
  leave(&c, &hub);
  lb_slots_fini(&t);
  lb_hub_fini(&hub);
}

static void slots_without_users_are_not_wanted(void **state) {
  (void)state;
  lb_slots t;
  lb_slot *s, *variant;
  lb_spec exp = spec_of(LB_S_EXP), log = spec_of(LB_S_LOG);
  lb_slot_user a = {.bit = 1, .ahead = LB_AHEAD_NONE},
               b = {.bit = 2, .ahead = LB_AHEAD_ALL};
  assert_false(lb_failed(lb_slots_init(&t, 16, lb_device_none())));
  assert_false(lb_failed(lb_slots_intern(&t, a, &exp, &(lb_facts){0}, &s)));
  assert_false(lb_failed(lb_slots_add(&t, &log, &(lb_facts){0}, &variant)));
  lb_slots_want_variants(&t, a, s, &variant, 1);
  assert_true(!lb_slot_wants_variants(s, a) && lb_slot_wants_variants(s, b));
  assert_int_equal(atomic_load(&variant->ahead), LB_AHEAD_NONE);
  lb_slots_want_variants(&t, b, s, &variant, 1);
  assert_false(lb_slot_wants_variants(s, b));
  assert_int_equal(atomic_load(&variant->ahead), LB_AHEAD_ALL);
  lb_slots_forget(&t, a.bit);
  assert_true(lb_slot_is_pending(s) && lb_slot_is_pending(variant));
  lb_slots_forget(&t, b.bit);
  assert_false(lb_slot_is_pending(s) || lb_slot_is_pending(variant));
  assert_int_equal(atomic_load(&variant->ahead), LB_AHEAD_UNKNOWN);
  assert_true(lb_slots_use(&t, a, s));  // like the first time
  assert_true(lb_slot_is_pending(s) && !lb_slot_is_pending(variant));
  lb_slots_fini(&t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_slot_knows_who_uses_it),
      cmocka_unit_test(slots_without_users_are_not_wanted),
      cmocka_unit_test(equal_keys_share_a_slot),
      cmocka_unit_test(a_slot_is_empty_until_published),
      cmocka_unit_test(a_cover_creates_no_slot),
      cmocka_unit_test(a_slot_starts_with_the_built_in_kernel),
      cmocka_unit_test(a_trial_makes_plans_check_their_slots),
      cmocka_unit_test(a_module_attaches_one_block),
      cmocka_unit_test(evicted_slots_become_pending_again),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
