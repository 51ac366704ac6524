// compile/kernel_store.c -- kernels in the disk store: converts between
// requests and store entries.
#include "compile/kernel_store.h"

#include <stdio.h>
#include <string.h>

// Compared in full on a hit: everything that is hashed into the key.
typedef struct full_key {
  lb_request request;
  uint64_t generator;
} full_key;
_Static_assert(sizeof(full_key) == sizeof(lb_request) + 8,
               "no padding: compared");

static full_key full_key_of(const lb_request *r, uint64_t generator) {
  return (full_key){.request = *r, .generator = generator};
}

static lb_span span_of(const full_key *f) {
  return (lb_span){(const uint8_t *)f, sizeof *f};
}

lb_hash128 lb_kernel_store_key(const lb_request *r, uint64_t generator) {
  return lb_spec_key(&r->spec, &r->facts, r->target, generator);
}

// -- getting ------------------------------------------------------------------

static bool is_terminated(const char *text, size_t size) {
  return memchr(text, '\0', size) != NULL;
}

static bool read_info(const lb_blob *meta, uint64_t generator,
                      lb_object_info *out) {
  if (meta->size != sizeof *out) return false;
  memcpy(out, meta->data, sizeof *out);
  return out->generator == generator && out->abi == LB_KERNEL_ABI &&
         is_terminated(out->entry, sizeof out->entry) &&
         is_terminated(out->target, sizeof out->target);
}

bool lb_kernel_store_get(lb_store *s, const lb_request *r, uint64_t generator,
                         lb_stored_kernel *out) {
  full_key f = full_key_of(r, generator);
  lb_store_hit found;
  *out = (lb_stored_kernel){0};
  if (!s ||
      !lb_store_get(s, lb_kernel_store_key(r, generator), span_of(&f), &found))
    return false;
  bool good = read_info(&found.meta, generator, &out->info);
  if (good) {
    out->object = found.object;
    found.object = (lb_blob){0};
  } else {
    out->info = (lb_object_info){0};
  }
  lb_store_hit_fini(&found);
  return good;
}

// -- putting ------------------------------------------------------------------

// Separates assumptions from choices.
static void split(const lb_facts *f, lb_facts *assumed, lb_facts *chosen) {
  for (int i = 0; i < LB_MAX_FACTS; i++) {
    const lb_sfact *x = &f->list[i];
    if (x->kind == LB_SFACT_NONE) continue;
    lb_facts_add(x->kind == LB_CHOOSE_TILE ? chosen : assumed,
                 (lb_sfact_kind)x->kind, (lb_sdim)x->dim, x->value);
  }
}

typedef struct texts {
  char form[16];
  lb_strbuf spec, assume;
} texts;

static lb_status print(const lb_request *r, texts *t) {
  lb_facts assumed = {0}, chosen = {0};
  split(&r->facts, &assumed, &chosen);
  lb_spec_print(&r->spec, &t->spec);
  const char *spec = lb_strbuf_str(&t->spec);
  snprintf(t->form, sizeof t->form, "%.*s", (int)strcspn(spec, " "), spec);
  lb_strbuf_puts(&t->spec, chosen.list[0].kind ? " | " : "");
  lb_facts_print(&chosen, &t->spec);
  lb_facts_print(&assumed, &t->assume);
  LB_TRY(lb_strbuf_status(&t->spec));
  LB_TRY(lb_strbuf_status(&t->assume));
  return LB_OK;
}

lb_status lb_kernel_store_put(lb_store *s, const lb_request *r,
                              const lb_object_info *info, lb_span object) {
  if (!s) return LB_OK;
  full_key f = full_key_of(r, info->generator);
  texts t = {0};
  lb_status st = print(r, &t);
  lb_store_entry e = {.key = lb_kernel_store_key(r, info->generator),
                      .request = span_of(&f),
                      .meta = {(const uint8_t *)info, sizeof *info},
                      .object = object,
                      .form = t.form,
                      .spec = lb_strbuf_str(&t.spec),
                      .assume = lb_strbuf_str(&t.assume),
                      .target = r->target,
                      .reusable = lb_facts_reusable(&r->facts)};
  if (!lb_failed(st)) st = lb_store_put(s, &e);
  lb_strbuf_fini(&t.spec);
  lb_strbuf_fini(&t.assume);
  return st;
}

// -- reading entries ----------------------------------------------------------

static bool is_valid(const lb_request *r) {
  lb_status st = lb_spec_verify(&r->spec);
  if (!lb_failed(st)) st = lb_facts_verify(&r->facts);
  bool valid = !lb_failed(st);
  lb_status_drop(st);
  return valid;
}

bool lb_kernel_store_request(const lb_store_entry *e, uint64_t generator,
                             const char *target, lb_request *out) {
  full_key f;
  if (e->request.size != sizeof f) return false;
  memcpy(&f, e->request.data, sizeof f);
  *out = f.request;
  return f.generator == generator &&
         is_terminated(out->target, sizeof out->target) &&
         strcmp(out->target, target) == 0 && is_valid(out);
}
