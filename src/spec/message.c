// spec/message.c -- messages as bytes, and the checks of received ones.
#include "spec/message.h"

#include <string.h>

#define MAGIC 0x54494a4cu  // "LJIT"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "structs are sent as they are in memory");
_Static_assert(sizeof(lb_message_header) == LB_HEADER_BYTES, "no padding");
_Static_assert(sizeof(lb_request) ==
                   sizeof(lb_spec) + sizeof(lb_facts) + LB_TARGET_TEXT,
               "no padding");
_Static_assert(sizeof(lb_object_info) == 32 + LB_ENTRY_TEXT + LB_TARGET_TEXT,
               "no padding");

typedef struct response_body {
  uint32_t code;
  uint32_t size;  // of the data that follows
  lb_object_info info;
} response_body;
_Static_assert(LB_RESPONSE_BYTES == LB_HEADER_BYTES + sizeof(response_body),
               "no padding");

// -- headers ------------------------------------------------------------------

static uint64_t sum_of(const lb_message_header *h, lb_span body, lb_span rest) {
  uint64_t sum = lb_hash(h, offsetof(lb_message_header, sum));
  sum = lb_hash_seeded(body.data, body.size, sum);
  return rest.size ? lb_hash_seeded(rest.data, rest.size, sum) : sum;
}

// The checksum covers `body` and `rest` separately, because writers have them
// in separate buffers.
static void write_header(lb_message_kind kind, uint64_t id, lb_span body,
                         lb_span rest, uint8_t *out) {
  lb_message_header h = {
      .magic = MAGIC,
      .version = LB_MESSAGE_VERSION,
      .kind = (uint16_t)kind,
      .size = (uint32_t)(body.size + rest.size),
      .id = id,
  };
  h.sum = sum_of(&h, body, rest);
  memcpy(out, &h, sizeof h);
}

static bool is_size_of(lb_message_kind kind, uint32_t size) {
  if (kind == LB_MESSAGE_REQUEST) return size == sizeof(lb_request);
  return size >= sizeof(response_body) &&
         size <= sizeof(response_body) + LB_MAX_OBJECT;
}

lb_status lb_header_read(const uint8_t bytes[LB_HEADER_BYTES],
                         lb_message_kind kind, lb_message_header *out) {
  memcpy(out, bytes, sizeof *out);
  if (out->magic != MAGIC)
    return lb_error(LB_INVALID, "message: wrong magic number");
  if (out->version != LB_MESSAGE_VERSION)
    return lb_error(LB_INVALID,
                    "message: version %u, expected %u: the library and "
                    "limber-jit must be from the same build",
                    out->version, LB_MESSAGE_VERSION);
  if (out->kind != kind || out->reserved != 0)
    return lb_error(LB_INVALID, "message: not of the expected kind");
  if (!is_size_of(kind, out->size))
    return lb_error(LB_INVALID, "message: invalid body size of %u bytes",
                    out->size);
  return LB_OK;
}

static lb_status check_sum(const lb_message_header *h, lb_span body,
                           lb_span rest) {
  if (h->sum == sum_of(h, body, rest)) return LB_OK;
  return lb_error(LB_INVALID, "message: corrupt, wrong checksum");
}

// Whether it is printable ASCII, terminated by a NUL and padded with zeros.
static bool is_text(const char *text, size_t size) {
  size_t n = strnlen(text, size);
  for (size_t i = 0; i < n; i++)
    if (text[i] < ' ' || text[i] > '~') return false;
  for (size_t i = n; i < size; i++)
    if (text[i]) return false;
  return n < size;
}

// -- requests ----------------------------------------------------------------

lb_status lb_request_init(lb_request *r, const lb_spec *spec,
                          const lb_facts *facts, const char *target) {
  size_t n = strlen(target);
  memset(r, 0, sizeof *r);
  if (n >= sizeof r->target)
    return lb_error(LB_INVALID, "request: target of %zu characters is too long",
                    n);
  memcpy(&r->spec, spec, lb_spec_bytes(spec));
  r->facts = *facts;
  memcpy(r->target, target, n);
  return LB_OK;
}

void lb_request_write(const lb_request *r, uint64_t id,
                      uint8_t out[LB_REQUEST_BYTES]) {
  memcpy(out + LB_HEADER_BYTES, r, sizeof *r);
  write_header(LB_MESSAGE_REQUEST, id,
               (lb_span){out + LB_HEADER_BYTES, sizeof *r}, (lb_span){0}, out);
}

lb_status lb_request_read(const lb_message_header *head, const uint8_t *body,
                          lb_request *out) {
  LB_TRY(check_sum(head, (lb_span){body, head->size}, (lb_span){0}));
  memcpy(out, body, sizeof *out);
  LB_TRY(lb_spec_verify(&out->spec));
  LB_TRY(lb_facts_verify(&out->facts));
  if (!is_text(out->target, sizeof out->target))
    return lb_error(LB_INVALID, "request: target is not printable text");
  return LB_OK;
}

// -- responses ----------------------------------------------------------------

void lb_response_write(const lb_response *a, uint64_t id,
                       uint8_t out[LB_RESPONSE_BYTES]) {
  response_body body = {
      .code = (uint32_t)a->code,
      .size = (uint32_t)a->bytes.size,
      .info = a->info,
  };
  memcpy(out + LB_HEADER_BYTES, &body, sizeof body);
  write_header(LB_MESSAGE_RESPONSE, id,
               (lb_span){out + LB_HEADER_BYTES, sizeof body}, a->bytes, out);
}

static lb_status check_response(const response_body *b) {
  static const lb_object_info none;
  if (b->code > LB_INTERNAL)
    return lb_error(LB_INVALID, "response: unknown code %u", b->code);
  if (b->code != LB_CODE_OK) {
    if (b->size > LB_MAX_ERROR_TEXT ||
        memcmp(&b->info, &none, sizeof none) != 0)
      return lb_error(
          LB_INVALID,
          "response: malformed error (text too long, or object info set)");
    return LB_OK;
  }
  if (b->size == 0) return lb_error(LB_INVALID, "response: empty object");
  if (b->info.abi != LB_KERNEL_ABI)
    return lb_error(LB_INVALID, "response: kernel ABI %u, expected %u",
                    b->info.abi, LB_KERNEL_ABI);
  if (!is_text(b->info.entry, sizeof b->info.entry) || !b->info.entry[0] ||
      !is_text(b->info.target, sizeof b->info.target) || b->info.reserved != 0)
    return lb_error(LB_INVALID,
                    "response: entry or target is not printable text");
  return LB_OK;
}

lb_status lb_response_read(const lb_message_header *head, const uint8_t *body,
                           lb_response *out) {
  response_body b;
  size_t size = head->size - sizeof b;
  lb_span rest = {body + sizeof b, size};
  LB_TRY(check_sum(head, (lb_span){body, sizeof b}, rest));
  memcpy(&b, body, sizeof b);
  if (b.size != size)
    return lb_error(LB_INVALID, "response: sizes in header and body differ");
  LB_TRY(check_response(&b));
  *out = (lb_response){.code = (lb_code)b.code, .info = b.info, .bytes = rest};
  return LB_OK;
}
