// cache/slots.c -- slots by spec and facts.
#include "cache/slots.h"

#include <stdlib.h>
#include <string.h>

const char *lb_tier_name(lb_tier t) {
  static const char *const names[] = {"host", "pack", "reusable", "specialised",
                                      "fused"};
  return names[t];
}

lb_status lb_slots_init(lb_slots *s, uint32_t lanes, const lb_pack *pack) {
  *s = (lb_slots){.lanes = lanes, .pack = pack};
  return pthread_mutex_init(&s->lock, NULL) ? lb_oom() : LB_OK;
}

void lb_slots_fini(lb_slots *s) {
  for (size_t i = 0; i < s->map.count; i++) free(s->map.entries[i].value);
  lb_map_fini(&s->map);
  pthread_mutex_destroy(&s->lock);
}

static lb_status insert(lb_slots *s, const lb_slot_key *key,
                        lb_kernel_fn *kernel, lb_slot **out) {
  lb_slot *slot = calloc(1, sizeof *slot);
  if (!slot) return lb_oom();
  slot->key = *key;
  slot->in_pack = kernel != NULL;
  if (kernel) lb_slot_publish(slot, kernel, LB_TIER_PACK);
  lb_status st = lb_map_put(&s->map, &slot->key, sizeof slot->key, slot, NULL);
  if (lb_failed(st)) {
    free(slot);
  } else {
    *out = slot;
  }
  return st;
}

// *out is NULL if there is none, and none is made where it would be empty.
static lb_status find(lb_slots *s, const lb_slot_key *key, bool may_be_empty,
                      lb_slot **out) {
  *out = lb_map_get(&s->map, key, sizeof *key);
  if (*out) return LB_OK;
  lb_kernel_fn *kernel =
      s->pack ? lb_pack_find(s->pack, &key->spec, &key->facts) : NULL;
  if (!kernel && !may_be_empty) return LB_OK;
  return insert(s, key, kernel, out);
}

static lb_slot_key key_of(const lb_spec *spec, const lb_facts *facts) {
  lb_slot_key key;
  memset(&key, 0, sizeof key);
  key.spec = *spec;
  key.facts = *facts;
  return key;
}

lb_status lb_slots_intern(lb_slots *s, const lb_spec *spec,
                          const lb_facts *facts, lb_slot **out) {
  lb_slot_key key = key_of(spec, facts);
  pthread_mutex_lock(&s->lock);
  lb_status st = find(s, &key, true, out);
  if (!lb_failed(st)) atomic_store(&(*out)->wanted, true);
  pthread_mutex_unlock(&s->lock);
  return st;
}

lb_status lb_slots_try_pack(lb_slots *s, const lb_spec *spec,
                            const lb_facts *facts, lb_slot **out) {
  lb_slot_key key = key_of(spec, facts);
  pthread_mutex_lock(&s->lock);
  lb_status st = find(s, &key, false, out);
  pthread_mutex_unlock(&s->lock);
  if (!lb_failed(st) && *out && !(*out)->in_pack) *out = NULL;
  return st;
}

size_t lb_slots_wanted(lb_slots *s) {
  size_t n = 0;
  pthread_mutex_lock(&s->lock);
  for (size_t i = 0; i < s->map.count; i++)
    n += atomic_load(&((lb_slot *)s->map.entries[i].value)->wanted);
  pthread_mutex_unlock(&s->lock);
  return n;
}

lb_slot *lb_slots_at(lb_slots *s, size_t i) {
  pthread_mutex_lock(&s->lock);
  lb_slot *slot = i < s->map.count ? s->map.entries[i].value : NULL;
  pthread_mutex_unlock(&s->lock);
  return slot;
}
