// api/blob.c -- a primitive and its compiled kernels as bytes, to be kept by
// whoever wants to.
//
//   head      what made it, for which processors; a checksum of all of it
//   key       of the descriptor and its attributes: see primitive/desc.h
//   kernels   for each a request and its answer, as the worker sent it: see
//             spec/message.h
//
// Bytes that come back are not trusted to be whole: every number is checked
// before it is used. They are machine code all the same, and a checksum is no
// signature.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/error.h"
#include "api/primitive.h"
#include "base/clock.h"
#include "base/hash.h"
#include "compile/kernel_store.h"
#include "compile/worker.h"
#include "spec/generator.h"
#include "spec/message.h"

#define MAGIC "LIMBERPB"
#define VERSION 1
#define MAX_KERNELS 4096

typedef struct head {
  char magic[8];
  uint32_t version, abi;
  uint64_t generator;
  uint64_t size;  // of all of it
  uint64_t sum;   // of all of it, this being 0
  uint32_t key_size, n_kernels;
  char library[16];             // LIMBER_VERSION: keys are its own
  char target[LB_TARGET_TEXT];  // what a machine must have
} head;
_Static_assert(sizeof(head) == 64 + LB_TARGET_TEXT, "no padding");

static lb_status print_target(const lb_target *target, char *out) {
  lb_strbuf text = {0};
  lb_target_print(target, &text);
  lb_status st = lb_strbuf_status(&text);
  memset(out, 0, LB_TARGET_TEXT);
  strncpy(out, lb_strbuf_str(&text), LB_TARGET_TEXT - 1);
  lb_strbuf_fini(&text);
  return st;
}

static lb_status fill_head(const lb_primitive *p, head *h) {
  *h = (head){.magic = MAGIC,
              .version = VERSION,
              .abi = LB_KERNEL_ABI,
              .generator = LB_GENERATOR_VERSION,
              .key_size = (uint32_t)p->key_size};
  strncpy(h->library, LIMBER_VERSION, sizeof h->library - 1);
  return print_target(&p->shared->kernels.target, h->target);
}

static uint64_t sum_of(const head *h, lb_span rest) {
  head copy = *h;
  copy.sum = 0;
  return lb_hash_seeded(rest.data, rest.size, lb_hash(&copy, sizeof copy));
}

// -- its id ------------------------------------------------------------------

limber_status limber_primitive_get_cache_id(const limber_primitive *primitive,
                                            char out[LIMBER_CACHE_ID]) {
  head h;
  const lb_primitive *p = primitive->core;
  lb_status st = fill_head(p, &h);
  uint64_t a = sum_of(&h, (lb_span){p->key, p->key_size});
  h.sum = a;
  lb_hash128 wide = lb_hash_wide(&h, sizeof h);
  snprintf(out, LIMBER_CACHE_ID, "%016llx%016llx",
           (unsigned long long)(wide.lo ^ a), (unsigned long long)wide.hi);
  return lb_report(st, &primitive->runtime->log);
}

// -- writing -----------------------------------------------------------------

typedef struct writer {
  lb_strbuf bytes;
  lb_worker *worker;  // NULL: not needed yet
  const lb_primitive *primitive;
  head head;
  int64_t end_ns;
} writer;

typedef struct slots {
  lb_slot **list;  // owned
  size_t n, cap;
  bool failed;
} slots;

static void add_slot(void *user, lb_slot *slot) {
  slots *s = user;
  if (lb_slot_tier(slot) <= LB_TIER_PACK) return;
  for (size_t i = 0; i < s->n; i++)
    if (s->list[i] == slot) return;
  if (s->n == s->cap) {
    size_t cap = s->cap ? 2 * s->cap : 8;
    lb_slot **list = realloc(s->list, cap * sizeof *list);
    if (!list) {
      s->failed = true;
      return;
    }
    s->list = list;
    s->cap = cap;
  }
  s->list[s->n++] = slot;
}

static lb_status open_worker(writer *w) {
  lb_worker_options o = {.generator = LB_GENERATOR_VERSION};
  const lb_strbuf *path = &w->primitive->shared->kernels.worker;
  return w->worker ? LB_OK : lb_worker_new(lb_strbuf_str(path), &o, &w->worker);
}

static void put(writer *w, const void *p, size_t n) {
  lb_strbuf_putn(&w->bytes, p, n);
}

// Compiled code has lost what linked it: the object is on disk, or made again.
static lb_status get_object(writer *w, const lb_request *r,
                            lb_stored_kernel *out) {
  int64_t left = w->end_ns - lb_clock_ns();
  if (lb_kernel_store_get(w->primitive->shared->kernels.store, r,
                          LB_GENERATOR_VERSION, out))
    return LB_OK;
  if (left <= 0)
    return lb_error(LB_CANCELLED, "the kernels did not come in the time given");
  LB_TRY(open_worker(w));
  int64_t ms = left / 1000000 + 1;
  return lb_worker_compile(w->worker, r, ms > 60000 ? 60000 : (int)ms,
                           &out->object, &out->info);
}

static lb_status put_kernel(writer *w, const lb_slot *slot) {
  uint8_t request[LB_REQUEST_BYTES], answer[LB_RESPONSE_BYTES];
  lb_request r;
  lb_stored_kernel kept;
  LB_TRY(
      lb_request_init(&r, &slot->key.spec, &slot->key.facts, w->head.target));
  LB_TRY(get_object(w, &r, &kept));
  lb_response a = {.code = LB_CODE_OK,
                   .info = kept.info,
                   .bytes = lb_blob_span(&kept.object)};
  uint64_t id = w->head.n_kernels++;
  lb_request_write(&r, id, request);
  lb_response_write(&a, id, answer);
  put(w, request, sizeof request);
  put(w, answer, sizeof answer);
  put(w, kept.object.data, kept.object.size);
  lb_stored_kernel_fini(&kept);
  return LB_OK;
}

static lb_status write_all(writer *w) {
  slots all = {0};
  const lb_primitive *p = w->primitive;
  lb_status st = fill_head(p, &w->head);
  put(w, &w->head, sizeof w->head);
  put(w, p->key, p->key_size);
  lb_session_each_slot(p->session, add_slot, &all);
  if (!lb_failed(st) && all.failed) st = lb_oom();
  for (size_t i = 0; !lb_failed(st) && i < all.n; i++)
    st = put_kernel(w, all.list[i]);
  free(all.list);
  if (!lb_failed(st)) st = lb_strbuf_status(&w->bytes);
  if (lb_failed(st)) return st;
  w->head.size = w->bytes.len;
  w->head.sum =
      sum_of(&w->head, (lb_span){(uint8_t *)w->bytes.data + sizeof(head),
                                 w->bytes.len - sizeof(head)});
  memcpy(w->bytes.data, &w->head, sizeof w->head);
  return LB_OK;
}

limber_status limber_primitive_get_cache_blob(limber_primitive *primitive,
                                              double seconds, void **out,
                                              size_t *size) {
  writer w = {.primitive = primitive->core};
  double most = seconds < 1e6 ? seconds : 1e6;
  w.end_ns = lb_clock_ns() + (int64_t)(most * 1e9);
  *out = NULL;
  *size = 0;
  lb_status st = write_all(&w);
  lb_worker_free(w.worker);
  if (lb_failed(st)) {
    lb_strbuf_fini(&w.bytes);
  } else {
    *out = w.bytes.data;
    *size = w.bytes.len;
  }
  return lb_report(st, &primitive->runtime->log);
}

void limber_blob_free(void *blob) { free(blob); }

// -- reading -----------------------------------------------------------------

typedef struct reader {
  lb_span rest;
  head head;
  const limber_runtime *runtime;
  const lb_primitive *primitive;
} reader;

static lb_status short_blob(void) {
  return lb_error(LB_INVALID, "cache blob: it is cut short");
}

// The next n bytes.
static lb_status take(reader *r, size_t n, const uint8_t **out) {
  if (n > r->rest.size) return short_blob();
  *out = r->rest.data;
  r->rest.data += n;
  r->rest.size -= n;
  return LB_OK;
}

// Has this machine, as far as kernels may use it, all that the text names?
static lb_status check_target(const char *target, lb_target here) {
  char own[LB_TARGET_TEXT];
  lb_strbuf common = {0};
  LB_TRY(print_target(&here, own));
  LB_TRY(lb_target_restrict(&here, target));
  lb_target_print(&here, &common);
  lb_status st = lb_strbuf_status(&common);
  if (!lb_failed(st) && strcmp(lb_strbuf_str(&common), target) != 0)
    st = lb_error(LB_UNSUPPORTED,
                  "cache blob: it was made for %s, here kernels may use %s",
                  target, own);
  lb_strbuf_fini(&common);
  return st;
}

static lb_status check_head(reader *r, size_t size) {
  const head *h = &r->head;
  if (memcmp(h->magic, MAGIC, sizeof h->magic) != 0)
    return lb_error(LB_INVALID, "cache blob: this is none");
  if (h->version != VERSION)
    return lb_error(LB_UNSUPPORTED, "cache blob: it is of version %u, not %d",
                    h->version, VERSION);
  if (h->size != size) return short_blob();
  if (h->sum != sum_of(h, r->rest))
    return lb_error(LB_INVALID, "cache blob: it is damaged");
  if (h->library[sizeof h->library - 1] || h->target[LB_TARGET_TEXT - 1])
    return lb_error(LB_INVALID, "cache blob: it is damaged");
  if (h->abi != LB_KERNEL_ABI || h->generator != LB_GENERATOR_VERSION ||
      strcmp(h->library, LIMBER_VERSION) != 0)
    return lb_error(LB_UNSUPPORTED,
                    "cache blob: another version of Limber made it (%s): make "
                    "it again",
                    h->library);
  if (h->n_kernels > MAX_KERNELS)
    return lb_error(LB_INVALID, "cache blob: it is damaged");
  return check_target(h->target, r->primitive->shared->kernels.target);
}

static lb_status check_key(reader *r) {
  const uint8_t *key;
  LB_TRY(take(r, r->head.key_size, &key));
  if (r->head.key_size == r->primitive->key_size &&
      !memcmp(key, r->primitive->key, r->primitive->key_size))
    return LB_OK;
  return lb_error(LB_INVALID,
                  "cache blob: it is of another descriptor, other attributes "
                  "or other constants than '%s'",
                  r->primitive->text);
}

static lb_status load(reader *r, const lb_request *request, lb_span object) {
  lb_slots *all = r->primitive->shared->kernels.slots;
  lb_exec *exec;
  lb_slot *slot;
  bool kept;
  LB_TRY(lb_slots_intern(all, lb_runtime_user(r->runtime), &request->spec,
                         &request->facts, &slot));
  if (lb_slot_tier(slot) > LB_TIER_PACK) return LB_OK;
  LB_TRY(lb_device_load(all->device, object, "blob", &exec));
  lb_slot_code made = {.exec = exec,
                       .tier = lb_facts_reusable(&request->facts)
                                   ? LB_TIER_REUSABLE
                                   : LB_TIER_SPECIALISED};
  return lb_slots_publish(all, slot, &made, &kept);
}

static lb_status read_kernel(reader *r) {
  lb_message_header h;
  lb_request request;
  lb_response answer;
  const uint8_t *bytes;
  LB_TRY(take(r, LB_HEADER_BYTES, &bytes));
  LB_TRY(lb_header_read(bytes, LB_MESSAGE_REQUEST, &h));
  LB_TRY(take(r, h.size, &bytes));
  LB_TRY(lb_request_read(&h, bytes, &request));
  LB_TRY(take(r, LB_HEADER_BYTES, &bytes));
  LB_TRY(lb_header_read(bytes, LB_MESSAGE_RESPONSE, &h));
  LB_TRY(take(r, h.size, &bytes));
  LB_TRY(lb_response_read(&h, bytes, &answer));
  if (answer.code != LB_CODE_OK || strcmp(answer.info.target, r->head.target) ||
      strcmp(request.target, r->head.target) ||
      answer.info.abi != LB_KERNEL_ABI ||
      answer.info.generator != LB_GENERATOR_VERSION)
    return lb_error(LB_INVALID, "cache blob: a kernel is not what it says");
  return load(r, &request, answer.bytes);
}

static lb_status read_all(reader *r, const void *blob, size_t size) {
  if (!blob || size < sizeof r->head) return short_blob();
  memcpy(&r->head, blob, sizeof r->head);
  r->rest =
      (lb_span){(const uint8_t *)blob + sizeof(head), size - sizeof(head)};
  LB_TRY(check_head(r, size));
  LB_TRY(check_key(r));
  if (r->head.n_kernels && !r->primitive->shared->kernels.slots)
    return lb_error(LB_UNSUPPORTED,
                    "cache blob: kernels are off on this machine");
  for (uint32_t i = 0; i < r->head.n_kernels; i++) LB_TRY(read_kernel(r));
  return r->rest.size ? lb_error(LB_INVALID, "cache blob: it is too long")
                      : LB_OK;
}

limber_status limber_primitive_create_from_cache_blob(
    limber_runtime *runtime, const limber_primitive_desc *desc,
    const limber_attr *attr, const void *blob, size_t size,
    limber_primitive **out) {
  limber_status status = limber_primitive_create(runtime, desc, attr, out);
  if (status) return status;
  reader r = {.runtime = (*out)->runtime, .primitive = (*out)->core};
  const lb_log *log = &(*out)->runtime->log;
  lb_status st = read_all(&r, blob, size);
  if (lb_failed(st)) {
    limber_primitive_destroy(*out);
    *out = NULL;
  }
  return lb_report(st, log);
}
