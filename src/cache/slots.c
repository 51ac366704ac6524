// cache/slots.c -- slots by spec and facts.
#include "cache/slots.h"

#include <stdlib.h>
#include <string.h>

lb_status lb_slots_init(lb_slots *s, uint32_t lanes) {
  *s = (lb_slots){.lanes = lanes};
  return pthread_mutex_init(&s->lock, NULL) ? lb_oom() : LB_OK;
}

void lb_slots_fini(lb_slots *s) {
  for (size_t i = 0; i < s->map.count; i++) free(s->map.entries[i].value);
  lb_map_fini(&s->map);
  pthread_mutex_destroy(&s->lock);
}

static lb_status insert(lb_slots *s, const lb_slot_key *key, lb_slot **out) {
  lb_slot *slot = calloc(1, sizeof *slot);
  if (!slot) return lb_oom();
  slot->key = *key;
  lb_status st = lb_map_put(&s->map, &slot->key, sizeof slot->key, slot, NULL);
  if (lb_failed(st)) {
    free(slot);
  } else {
    *out = slot;
  }
  return st;
}

lb_status lb_slots_intern(lb_slots *s, const lb_spec *spec,
                          const lb_facts *facts, lb_slot **out) {
  lb_slot_key key;
  memset(&key, 0, sizeof key);
  key.spec = *spec;
  key.facts = *facts;
  pthread_mutex_lock(&s->lock);
  *out = lb_map_get(&s->map, &key, sizeof key);
  lb_status st = *out ? LB_OK : insert(s, &key, out);
  pthread_mutex_unlock(&s->lock);
  return st;
}

size_t lb_slots_count(lb_slots *s) {
  pthread_mutex_lock(&s->lock);
  size_t n = s->map.count;
  pthread_mutex_unlock(&s->lock);
  return n;
}

lb_slot *lb_slots_at(lb_slots *s, size_t i) {
  pthread_mutex_lock(&s->lock);
  lb_slot *slot = i < s->map.count ? s->map.entries[i].value : NULL;
  pthread_mutex_unlock(&s->lock);
  return slot;
}
