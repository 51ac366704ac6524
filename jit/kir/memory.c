// kir/memory.c -- Loads and stores with checks of bounds and alignment.
#include "kir/memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef struct access {
  const lb_kstep *s;
  const lb_kmemory *m;
  const uint8_t *mask;  // NULL: all lanes
  lb_kptr p;
  lb_kfault *fault;
} access;

static access begin(const lb_kstep *s, char *frame, const lb_kmemory *memories,
                    uint32_t mask, lb_kfault *fault) {
  access a = {.s = s, .fault = fault};
  memcpy(&a.p, frame + s->src[0], sizeof a.p);
  a.m = &memories[a.p.memory];
  if (mask != LB_K_NONE) a.mask = (const uint8_t *)frame + mask;
  return a;
}

static bool is_on(const access *a, unsigned lane) {
  return !a->mask || a->mask[lane];
}

// The address of `offset` if `size` bytes are accessible there, else NULL.
static char *at(const access *a, int64_t offset, size_t size) {
  if (offset >= 0 && size <= a->m->size &&
      (uint64_t)offset <= a->m->size - size)
    return a->m->base + offset;
  snprintf(a->fault->text, sizeof a->fault->text,
           "accesses %zu bytes at offset %" PRId64
           " of memory %u, which has %zu bytes",
           size, offset, a->p.memory, a->m->size);
  return NULL;
}

static int64_t offset_of(const access *a, int64_t index) {
  return (int64_t)((uint64_t)a->p.offset +
                   (uint64_t)index * (uint64_t)a->s->size);
}

// The stated alignment must hold for p, whatever the mask.
static bool is_aligned(const access *a) {
  uint64_t align = a->s->imm ? (uint64_t)a->s->imm : a->s->size;
  uint64_t address = (uintptr_t)a->m->base + (uint64_t)a->p.offset;
  if (address % align == 0) return true;
  snprintf(a->fault->text, sizeof a->fault->text,
           "is declared aligned to %" PRIu64 ", but offset %" PRId64
           " of memory %u is not",
           align, a->p.offset, a->p.memory);
  return false;
}

static bool is_any_on(const access *a) {
  for (unsigned i = 0; i < a->s->lanes; i++)
    if (is_on(a, i)) return true;
  return false;
}

static void read_lane(const lb_kstep *s, char *to, const char *from) {
  if (s->from == LB_BOOL)
    *to = *from != 0;
  else
    memcpy(to, from, s->size);
}

// Sets the lanes that may be masked off to those of `other`, or 0.
static void fill(const lb_kstep *s, char *frame, uint32_t other) {
  size_t bytes = (size_t)s->lanes * s->size;
  if (other == LB_K_NONE)
    memset(frame + s->dst, 0, bytes);
  else
    memcpy(frame + s->dst, frame + other, bytes);
}

bool lb_kaccess_load(const lb_kstep *s, char *frame, const lb_kmemory *memories,
                     lb_kfault *fault) {
  access a = begin(s, frame, memories, s->src[1], fault);
  char *to = frame + s->dst;
  if (a.mask) fill(s, frame, s->src[2]);
  if (a.mask && !is_any_on(&a)) return true;
  if (!is_aligned(&a)) return false;
  if (!a.mask && s->from != LB_BOOL) {
    size_t bytes = (size_t)s->lanes * s->size;
    const char *from = at(&a, a.p.offset, bytes);
    if (from) memcpy(to, from, bytes);
    return from != NULL;
  }
  for (unsigned i = 0; i < s->lanes; i++) {
    if (!is_on(&a, i)) continue;
    const char *from = at(&a, offset_of(&a, i), s->size);
    if (!from) return false;
    read_lane(s, to + i * s->size, from);
  }
  return true;
}

bool lb_kaccess_store(const lb_kstep *s, char *frame,
                      const lb_kmemory *memories, lb_kfault *fault) {
  access a = begin(s, frame, memories, s->src[2], fault);
  const char *from = frame + s->src[1];
  if (a.mask && !is_any_on(&a)) return true;
  if (!is_aligned(&a)) return false;
  for (unsigned i = 0; i < s->lanes; i++) {
    if (!is_on(&a, i)) continue;
    char *to = at(&a, offset_of(&a, i), s->size);
    if (!to) return false;
    memcpy(to, from + i * s->size, s->size);
  }
  return true;
}

// from_lanes holds the size of an index in bytes.
static int64_t index_of(const lb_kstep *s, const char *frame, unsigned lane) {
  const char *p = frame + s->src[1] + lane * s->from_lanes;
  int64_t wide;
  int32_t narrow;
  memcpy(&narrow, p, sizeof narrow);
  if (s->from_lanes == sizeof narrow) return narrow;
  memcpy(&wide, p, sizeof wide);
  return wide;
}

bool lb_kaccess_gather(const lb_kstep *s, char *frame,
                       const lb_kmemory *memories, lb_kfault *fault) {
  access a = begin(s, frame, memories, s->src[2], fault);
  if (a.mask) fill(s, frame, s->src[3]);
  for (unsigned i = 0; i < s->lanes; i++) {
    if (!is_on(&a, i)) continue;
    const char *from = at(&a, offset_of(&a, index_of(s, frame, i)), s->size);
    if (!from) return false;
    read_lane(s, frame + s->dst + i * s->size, from);
  }
  return true;
}

bool lb_kaccess_scatter(const lb_kstep *s, char *frame,
                        const lb_kmemory *memories, lb_kfault *fault) {
  access a = begin(s, frame, memories, s->src[3], fault);
  for (unsigned i = 0; i < s->lanes; i++) {
    if (!is_on(&a, i)) continue;
    char *to = at(&a, offset_of(&a, index_of(s, frame, i)), s->size);
    if (!to) return false;
    memcpy(to, frame + s->src[2] + i * s->size, s->size);
  }
  return true;
}
