// tests/fuzz/fuzz_message.c -- Reads arbitrary bytes as a message between the
// library and limber-jit: the result is an error, or a message that is written
// back as the same bytes.
//
// The first byte chooses between the bytes as they are and a message around
// them with a valid checksum, so that the code behind the checksum is tested
// too.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "spec/message.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int holds) {
  if (!holds) abort();
}

static void read_request(const uint8_t *data, size_t size) {
  lb_message_header header;
  lb_request r;
  uint8_t again[LB_REQUEST_BYTES];
  if (size < LB_HEADER_BYTES) return;
  lb_status st = lb_header_read(data, LB_MESSAGE_REQUEST, &header);
  if (!lb_failed(st) && size - LB_HEADER_BYTES >= header.size) {
    st = lb_request_read(&header, data + LB_HEADER_BYTES, &r);
    if (!lb_failed(st)) {
      lb_request_write(&r, header.id, again);
      check(memcmp(again, data, sizeof again) == 0);
    }
  }
  lb_status_drop(st);
}

static void read_response(const uint8_t *data, size_t size) {
  lb_message_header header;
  lb_response a;
  uint8_t again[LB_RESPONSE_BYTES];
  if (size < LB_HEADER_BYTES) return;
  lb_status st = lb_header_read(data, LB_MESSAGE_RESPONSE, &header);
  if (!lb_failed(st) && size - LB_HEADER_BYTES >= header.size) {
    st = lb_response_read(&header, data + LB_HEADER_BYTES, &a);
    if (!lb_failed(st)) {
      check(a.bytes.data + a.bytes.size ==
            data + LB_HEADER_BYTES + header.size);
      lb_response_write(&a, header.id, again);
      check(memcmp(again, data, sizeof again) == 0);
    }
  }
  lb_status_drop(st);
}

static void read_sealed_request(const uint8_t *data, size_t size) {
  lb_request r = {0};
  uint8_t bytes[LB_REQUEST_BYTES];
  memcpy(&r, data, size < sizeof r ? size : sizeof r);
  lb_request_write(&r, 1, bytes);
  read_request(bytes, sizeof bytes);
}

static void read_sealed_response(const uint8_t *data, size_t size) {
  lb_response a = {0};
  size_t n = size < sizeof a.info ? size : sizeof a.info;
  if (size == 0) return;
  memcpy(&a.info, data, n);
  a.code = (lb_code)(data[0] % 16);
  a.bytes = (lb_span){data + n, size - n};
  uint8_t *bytes = malloc(LB_RESPONSE_BYTES + a.bytes.size);
  if (!bytes) return;
  lb_response_write(&a, 1, bytes);
  if (a.bytes.size)
    memcpy(bytes + LB_RESPONSE_BYTES, a.bytes.data, a.bytes.size);
  read_response(bytes, LB_RESPONSE_BYTES + a.bytes.size);
  free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size == 0) return 0;
  switch (data[0] % 4) {
    case 0: read_request(data + 1, size - 1); break;
    case 1: read_response(data + 1, size - 1); break;
    case 2: read_sealed_request(data + 1, size - 1); break;
    default: read_sealed_response(data + 1, size - 1); break;
  }
  return 0;
}
