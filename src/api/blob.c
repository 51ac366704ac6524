// api/blob.c -- cache blobs: a primitive and its compiled kernels as bytes that
// the program can store.
//
//   header    versions, instruction set, and a checksum of the whole blob
//   key       of the descriptor and its attributes: see primitive/desc.h
//   kernels   for each a request and its response, as exchanged with the
//             worker: see spec/message.h
//
// A blob that is read back may be corrupt, so every number is checked before it
// is used. It contains machine code nevertheless, and a checksum is not a
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

typedef struct blob_header {
  char magic[8];
  uint32_t version, abi;
  uint64_t generator;
  uint64_t size;  // of the whole blob
  uint64_t sum;   // checksum of the whole blob, with this field as 0
  uint32_t key_size, n_kernels;
  char library[16];             // LIMBER_VERSION; keys differ by version
  char target[LB_TARGET_TEXT];  // the instruction set that the kernels need
} blob_header;
_Static_assert(sizeof(blob_header) == 64 + LB_TARGET_TEXT, "no padding");

static lb_status print_target(const lb_target *target, char *out) {
  lb_strbuf text = {0};
  lb_target_print(target, &text);
  lb_status st = lb_strbuf_status(&text);
  memset(out, 0, LB_TARGET_TEXT);
  strncpy(out, lb_strbuf_str(&text), LB_TARGET_TEXT - 1);
  lb_strbuf_fini(&text);
  return st;
}

static lb_status fill_header(const lb_primitive *p, blob_header *h) {
  *h = (blob_header){.magic = MAGIC,
                     .version = VERSION,
                     .abi = LB_KERNEL_ABI,
                     .generator = LB_GENERATOR_VERSION,
                     .key_size = (uint32_t)p->key_size};
  strncpy(h->library, LIMBER_VERSION, sizeof h->library - 1);
  return print_target(&p->shared->kernels.target, h->target);
}

static uint64_t sum_of(const blob_header *h, lb_span rest) {
  blob_header copy = *h;
  copy.sum = 0;
  return lb_hash_seeded(rest.data, rest.size, lb_hash(&copy, sizeof copy));
}

// -- the cache id ------------------------------------------------------------

limber_status limber_primitive_get_cache_id(const limber_primitive *primitive,
                                            char out[LIMBER_CACHE_ID]) {
  blob_header h;
  const lb_primitive *p = primitive->core;
  lb_status st = fill_header(p, &h);
  uint64_t a = sum_of(&h, (lb_span){p->key, p->key_size});
  h.sum = a;
  lb_hash128 wide = lb_hash_wide(&h, sizeof h);
  snprintf(out, LIMBER_CACHE_ID, "%016llx%016llx",
           (unsigned long long)(wide.lo ^ a), (unsigned long long)wide.hi);
  return lb_report(st, &primitive->runtime->log);
}

// -- writing -----------------------------------------------------------------

typedef struct blob_writer {
  lb_strbuf bytes;
  lb_worker *worker;  // owned; NULL: not needed yet
  const lb_primitive *primitive;
  blob_header blob_header;
  int64_t end_ns;
} blob_writer;

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

static lb_status open_worker(blob_writer *w) {
  lb_worker_options o = {.generator = LB_GENERATOR_VERSION};
  const lb_strbuf *path = &w->primitive->shared->kernels.worker;
  return w->worker ? LB_OK : lb_worker_new(lb_strbuf_str(path), &o, &w->worker);
}

static void put(blob_writer *w, const void *p, size_t n) {
  lb_strbuf_putn(&w->bytes, p, n);
}

// Loaded code cannot be written back as a relocatable object, so the object is
// read from the store, or compiled again.
static lb_status get_object(blob_writer *w, const lb_request *r,
                            lb_stored_kernel *out) {
  int64_t left = w->end_ns - lb_clock_ns();
  if (lb_kernel_store_get(w->primitive->shared->kernels.store, r,
                          LB_GENERATOR_VERSION, out))
    return LB_OK;
  if (left <= 0)
    return lb_error(LB_CANCELLED,
                    "cache blob: the kernels were not compiled within the time "
                    "limit; allow more seconds");
  LB_TRY(open_worker(w));
  int64_t ms = left / 1000000 + 1;
  return lb_worker_compile(w->worker, r, ms > 60000 ? 60000 : (int)ms,
                           &out->object, &out->info);
}

static lb_status put_kernel(blob_writer *w, const lb_slot *slot) {
  uint8_t request[LB_REQUEST_BYTES], response[LB_RESPONSE_BYTES];
  lb_request r;
  lb_stored_kernel stored;
  LB_TRY(lb_request_init(&r, &slot->key.spec, &slot->key.facts,
                         w->blob_header.target));
  LB_TRY(get_object(w, &r, &stored));
  lb_response a = {.code = LB_CODE_OK,
                   .info = stored.info,
                   .bytes = lb_blob_span(&stored.object)};
  uint64_t id = w->blob_header.n_kernels++;
  lb_request_write(&r, id, request);
  lb_response_write(&a, id, response);
  put(w, request, sizeof request);
  put(w, response, sizeof response);
  put(w, stored.object.data, stored.object.size);
  lb_stored_kernel_fini(&stored);
  return LB_OK;
}

static lb_status write_all(blob_writer *w) {
  slots all = {0};
  const lb_primitive *p = w->primitive;
  lb_status st = fill_header(p, &w->blob_header);
  put(w, &w->blob_header, sizeof w->blob_header);
  put(w, p->key, p->key_size);
  lb_session_each_slot(p->session, add_slot, &all);
  if (!lb_failed(st) && all.failed) st = lb_oom();
  for (size_t i = 0; !lb_failed(st) && i < all.n; i++)
    st = put_kernel(w, all.list[i]);
  free(all.list);
  if (!lb_failed(st)) st = lb_strbuf_status(&w->bytes);
  if (lb_failed(st)) return st;
  w->blob_header.size = w->bytes.len;
  w->blob_header.sum = sum_of(
      &w->blob_header, (lb_span){(uint8_t *)w->bytes.data + sizeof(blob_header),
                                 w->bytes.len - sizeof(blob_header)});
  memcpy(w->bytes.data, &w->blob_header, sizeof w->blob_header);
  return LB_OK;
}

limber_status limber_primitive_get_cache_blob(limber_primitive *primitive,
                                              double seconds, void **out,
                                              size_t *size) {
  blob_writer w = {.primitive = primitive->core};
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

typedef struct blob_reader {
  lb_span rest;
  blob_header blob_header;
  const limber_runtime *runtime;
  const lb_primitive *primitive;
} blob_reader;

static lb_status short_blob(void) {
  return lb_error(LB_INVALID, "cache blob: truncated");
}

// Returns the next n bytes.
static lb_status take(blob_reader *r, size_t n, const uint8_t **out) {
  if (n > r->rest.size) return short_blob();
  *out = r->rest.data;
  r->rest.data += n;
  r->rest.size -= n;
  return LB_OK;
}

// Checks that kernels on this machine may use the whole instruction set of
// `target`.
static lb_status check_target(const char *target, lb_target here) {
  char own[LB_TARGET_TEXT];
  lb_strbuf common = {0};
  LB_TRY(print_target(&here, own));
  LB_TRY(lb_target_restrict(&here, target));
  lb_target_print(&here, &common);
  lb_status st = lb_strbuf_status(&common);
  if (!lb_failed(st) && strcmp(lb_strbuf_str(&common), target) != 0)
    st = lb_error(LB_UNSUPPORTED,
                  "cache blob: its kernels need %s, here kernels may use %s",
                  target, own);
  lb_strbuf_fini(&common);
  return st;
}

static lb_status check_header(blob_reader *r, size_t size) {
  const blob_header *h = &r->blob_header;
  if (memcmp(h->magic, MAGIC, sizeof h->magic) != 0)
    return lb_error(LB_INVALID, "cache blob: not a cache blob");
  if (h->version != VERSION)
    return lb_error(LB_UNSUPPORTED,
                    "cache blob: its format version is %u, not %d", h->version,
                    VERSION);
  if (h->size != size) return short_blob();
  if (h->sum != sum_of(h, r->rest))
    return lb_error(LB_INVALID, "cache blob: corrupt (wrong checksum)");
  if (h->library[sizeof h->library - 1] || h->target[LB_TARGET_TEXT - 1])
    return lb_error(LB_INVALID, "cache blob: corrupt (unterminated text)");
  if (h->abi != LB_KERNEL_ABI || h->generator != LB_GENERATOR_VERSION ||
      strcmp(h->library, LIMBER_VERSION) != 0)
    return lb_error(LB_UNSUPPORTED,
                    "cache blob: another version of Limber wrote it (%s): "
                    "create it again",
                    h->library);
  if (h->n_kernels > MAX_KERNELS)
    return lb_error(LB_INVALID, "cache blob: corrupt (too many kernels)");
  return check_target(h->target, r->primitive->shared->kernels.target);
}

static lb_status check_key(blob_reader *r) {
  const uint8_t *key;
  LB_TRY(take(r, r->blob_header.key_size, &key));
  if (r->blob_header.key_size == r->primitive->key_size &&
      !memcmp(key, r->primitive->key, r->primitive->key_size))
    return LB_OK;
  return lb_error(LB_INVALID,
                  "cache blob: it belongs to another descriptor, other "
                  "attributes or other constants than '%s'",
                  r->primitive->text);
}

static lb_status load(blob_reader *r, const lb_request *request,
                      lb_span object) {
  lb_slots *all = r->primitive->shared->kernels.slots;
  lb_exec *exec;
  lb_slot *slot;
  bool stored;
  LB_TRY(lb_slots_intern(all, lb_runtime_user(r->runtime), &request->spec,
                         &request->facts, &slot));
  if (lb_slot_tier(slot) > LB_TIER_PACK) return LB_OK;
  LB_TRY(lb_device_load(all->device, object, "blob", &exec));
  lb_slot_code compiled = {.exec = exec,
                           .tier = lb_facts_reusable(&request->facts)
                                       ? LB_TIER_REUSABLE
                                       : LB_TIER_SPECIALISED};
  return lb_slots_publish(all, slot, &compiled, &stored);
}

static lb_status read_kernel(blob_reader *r) {
  lb_message_header h;
  lb_request request;
  lb_response response;
  const uint8_t *bytes;
  LB_TRY(take(r, LB_HEADER_BYTES, &bytes));
  LB_TRY(lb_header_read(bytes, LB_MESSAGE_REQUEST, &h));
  LB_TRY(take(r, h.size, &bytes));
  LB_TRY(lb_request_read(&h, bytes, &request));
  LB_TRY(take(r, LB_HEADER_BYTES, &bytes));
  LB_TRY(lb_header_read(bytes, LB_MESSAGE_RESPONSE, &h));
  LB_TRY(take(r, h.size, &bytes));
  LB_TRY(lb_response_read(&h, bytes, &response));
  if (response.code != LB_CODE_OK ||
      strcmp(response.info.target, r->blob_header.target) ||
      strcmp(request.target, r->blob_header.target) ||
      response.info.abi != LB_KERNEL_ABI ||
      response.info.generator != LB_GENERATOR_VERSION)
    return lb_error(LB_INVALID,
                    "cache blob: a kernel does not match the header");
  return load(r, &request, response.bytes);
}

static lb_status read_all(blob_reader *r, const void *blob, size_t size) {
  if (!blob || size < sizeof r->blob_header) return short_blob();
  memcpy(&r->blob_header, blob, sizeof r->blob_header);
  r->rest = (lb_span){(const uint8_t *)blob + sizeof(blob_header),
                      size - sizeof(blob_header)};
  LB_TRY(check_header(r, size));
  LB_TRY(check_key(r));
  if (r->blob_header.n_kernels && !r->primitive->shared->kernels.slots)
    return lb_error(LB_UNSUPPORTED,
                    "cache blob: kernels are disabled on this machine");
  for (uint32_t i = 0; i < r->blob_header.n_kernels; i++)
    LB_TRY(read_kernel(r));
  return r->rest.size ? lb_error(LB_INVALID, "cache blob: trailing bytes")
                      : LB_OK;
}

limber_status limber_primitive_create_from_cache_blob(
    limber_runtime *runtime, const limber_primitive_desc *desc,
    const limber_attr *attr, const void *blob, size_t size,
    limber_primitive **out) {
  limber_status status = limber_primitive_create(runtime, desc, attr, out);
  if (status) return status;
  blob_reader r = {.runtime = (*out)->runtime, .primitive = (*out)->core};
  const lb_log *log = &(*out)->runtime->log;
  lb_status st = read_all(&r, blob, size);
  if (lb_failed(st)) {
    limber_primitive_destroy(*out);
    *out = NULL;
  }
  return lb_report(st, log);
}
