// spec/message.h -- the protocol between the library and `limber-jit`.
//
// Over a stream socket: requests one way, one response to each the other way,
// in order. A message is a header and a body. The header has the size of the
// body and a checksum of both, so that a stray or corrupt byte is detected, not
// compiled or run. Numbers are little-endian; text ends with NUL and is padded
// with zeros.
//
//   request   spec, facts, target                          (a fixed size)
//   response  code and information, then the object or, if the code is an
//             error, the error message
//
// The other side is not trusted: every function that reads accepts any bytes.
// The checksum is not a signature; it detects accidents. All functions are
// pure: any thread may call them.
#ifndef LB_SPEC_MESSAGE_H
#define LB_SPEC_MESSAGE_H

#include "base/file.h"
#include "spec/abi.h"

#define LB_MESSAGE_VERSION 1       // of this protocol, equal on both sides
#define LB_TARGET_TEXT 192         // max bytes of a target, with its NUL
#define LB_ENTRY_TEXT 32           // max bytes of an entry name, with its NUL
#define LB_MAX_OBJECT (16u << 20)  // max bytes of an object
#define LB_MAX_ERROR_TEXT (4u << 10)  // max bytes of an error message

typedef enum lb_message_kind {
  LB_MESSAGE_REQUEST = 1,
  LB_MESSAGE_RESPONSE = 2,
} lb_message_kind;

// -- headers

typedef struct lb_message_header {
  uint32_t magic;
  uint16_t version;
  uint16_t kind;
  uint32_t size;  // of the body
  uint32_t reserved;
  uint64_t id;   // of a request; its response has the same
  uint64_t sum;  // checksum of all bytes before, and of the body
} lb_message_header;

#define LB_HEADER_BYTES 32

// LB_INVALID unless it is the header of a message of that kind and version,
// with a size that such a message can have.
lb_status lb_header_read(const uint8_t bytes[LB_HEADER_BYTES],
                         lb_message_kind kind, lb_message_header *out);

// -- requests

typedef struct lb_request {
  lb_spec spec;
  lb_facts facts;
  char target[LB_TARGET_TEXT];  // "x86-64-v4+avx512vnni"
} lb_request;

#define LB_REQUEST_BYTES (LB_HEADER_BYTES + sizeof(lb_request))

// LB_INVALID if the target is too long.
lb_status lb_request_init(lb_request *r, const lb_spec *spec,
                          const lb_facts *facts, const char *target);
void lb_request_write(const lb_request *r, uint64_t id,
                      uint8_t out[LB_REQUEST_BYTES]);
// `body` has head->size bytes. On success, spec and facts are verified and the
// target is printable text.
lb_status lb_request_read(const lb_message_header *head, const uint8_t *body,
                          lb_request *out);

// -- responses

// Information about an object. Times are measured by the worker.
typedef struct lb_object_info {
  uint64_t generator;   // generator version: see lb_spec_key
  uint32_t abi;         // LB_KERNEL_ABI
  uint32_t compile_us;  // from spec to object
  uint32_t check_us;    // checks against the interpreter; not included in
                        // compile_us
  uint32_t checks;      // number of shapes at which it was checked
  uint32_t spills;      // vector registers spilled, as far as known
  uint32_t reserved;
  char entry[LB_ENTRY_TEXT];    // the function to call
  char target[LB_TARGET_TEXT];  // instruction sets that it needs
} lb_object_info;

typedef struct lb_response {
  lb_code code;         // LB_CODE_OK: `bytes` is an object; else an error
                        // message
  lb_object_info info;  // {0} if `bytes` is an error message
  lb_span bytes;        // borrowed
} lb_response;

#define LB_RESPONSE_BYTES (LB_HEADER_BYTES + 8 + sizeof(lb_object_info))

// Writes everything before a->bytes, which must follow and must be within the
// limits above.
void lb_response_write(const lb_response *a, uint64_t id,
                       uint8_t out[LB_RESPONSE_BYTES]);
// `body` has head->size bytes; out->bytes points into it.
lb_status lb_response_read(const lb_message_header *head, const uint8_t *body,
                           lb_response *out);

#endif
