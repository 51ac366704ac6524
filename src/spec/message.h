// spec/message.h -- what the library and `limber-jit` say to each other.
//
// Over a stream socket: requests one way, one answer to each the other way, in
// order. A message is a head and a body. The head says how long the body is
// and holds a checksum of both, so that a stray or broken byte is noticed, not
// compiled or run. Numbers are little-endian, text ends with NUL and is padded
// with zeros.
//
//   request  spec, facts, target                          (a fixed size)
//   answer   code and information, then the object or, where the code says
//            that it failed, the message
//
// The other side is not trusted: every function that reads takes any bytes.
// A checksum is no signature; it finds accidents. Pure functions: any thread.
#ifndef LB_SPEC_MESSAGE_H
#define LB_SPEC_MESSAGE_H

#include "base/file.h"
#include "spec/abi.h"

#define LB_MESSAGE_VERSION 1          // of this file; both sides have the same
#define LB_TARGET_TEXT 192            // bytes of a target, with its NUL
#define LB_ENTRY_TEXT 32              // of the name of a function
#define LB_MAX_OBJECT (16u << 20)     // bytes
#define LB_MAX_ERROR_TEXT (4u << 10)  // bytes of a message

typedef enum lb_message_kind {
  LB_MESSAGE_REQUEST = 1,
  LB_MESSAGE_RESPONSE = 2,
} lb_message_kind;

// -- heads

typedef struct lb_message_header {
  uint32_t magic;
  uint16_t version;
  uint16_t kind;
  uint32_t size;  // of the body
  uint32_t reserved;
  uint64_t id;   // of a request; its answer has the same
  uint64_t sum;  // of all bytes before, and of the body
} lb_message_header;

#define LB_HEADER_BYTES 32

// LB_INVALID unless it is the head of a message of that kind and version, with
// a size that such a message can have.
lb_status lb_header_read(const uint8_t bytes[LB_HEADER_BYTES],
                         lb_message_kind kind, lb_message_header *out);

// -- requests

typedef struct lb_request {
  lb_spec spec;
  lb_facts facts;
  char target[LB_TARGET_TEXT];  // "x86-64-v4+avx512vnni"
} lb_request;

#define LB_REQUEST_BYTES (LB_HEADER_BYTES + sizeof(lb_request))

// LB_INVALID if the target does not fit.
lb_status lb_request_init(lb_request *r, const lb_spec *spec,
                          const lb_facts *facts, const char *target);
void lb_request_write(const lb_request *r, uint64_t id,
                      uint8_t out[LB_REQUEST_BYTES]);
// `body` has head->size bytes. On success spec and facts are verified and the
// target is a text of printable characters.
lb_status lb_request_read(const lb_message_header *head, const uint8_t *body,
                          lb_request *out);

// -- answers

// All that is known of an object besides its bytes. Times are of the worker.
typedef struct lb_object_info {
  uint64_t generator;   // version of what made it: see lb_spec_key
  uint32_t abi;         // LB_KERNEL_ABI
  uint32_t compile_us;  // from spec to object
  uint32_t check_us;    // the check against the interpreter, apart
  uint32_t checks;      // how many shapes it was checked at
  uint32_t spills;      // vector registers spilt, as far as it is known
  uint32_t reserved;
  char entry[LB_ENTRY_TEXT];    // the function to call
  char target[LB_TARGET_TEXT];  // what a machine must have to run it
} lb_object_info;

typedef struct lb_response {
  lb_code code;         // LB_CODE_OK: `bytes` is an object, else the message
  lb_object_info info;  // {0} unless it is an object
  lb_span bytes;        // borrowed
} lb_response;

#define LB_RESPONSE_BYTES (LB_HEADER_BYTES + 8 + sizeof(lb_object_info))

// Everything before a->bytes, which are to follow, and which are within the
// limits above.
void lb_response_write(const lb_response *a, uint64_t id,
                       uint8_t out[LB_RESPONSE_BYTES]);
// `body` has head->size bytes, and is what out->bytes points into.
lb_status lb_response_read(const lb_message_header *head, const uint8_t *body,
                           lb_response *out);

#endif
