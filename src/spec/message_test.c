// spec/message_test.c -- messages survive a round trip, and corrupt ones are
// rejected.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <string.h>

#include "spec/message.h"

static void assert_ok(lb_status st) {
  if (!lb_failed(st)) return;
  print_error("%s (%s)\n", lb_status_message(st), lb_status_where(st));
  lb_status_drop(st);
  fail();
}

static void assert_rejected(lb_status st, const char *part) {
  assert_int_equal(lb_status_code(st), LB_INVALID);
  if (!strstr(lb_status_message(st), part)) {
    print_error("wanted '%s', got '%s'\n", part, lb_status_message(st));
    fail();
  }
  lb_status_drop(st);
}

static lb_request a_request(void) {
  lb_spec_builder b;
  lb_spec spec;
  lb_request r;
  lb_facts facts = {0};
  lb_spec_begin(&b, LB_FORM_ELTWISE);
  uint8_t x = lb_spec_input(&b, LB_F32, LB_LAYOUT_FULL);
  uint8_t y = lb_spec_input(&b, LB_F32, LB_LAYOUT_PER_COL);
  uint8_t src[] = {x, y};
  lb_spec_output(&b, lb_spec_node(&b, LB_S_ADD, LB_F32, src, 2),
                 LB_LAYOUT_FULL);
  assert_ok(lb_spec_finish(&b, &spec));
  lb_facts_add(&facts, LB_ASSUME_MULTIPLE, LB_DIM_COLS, 16);
  assert_ok(lb_request_init(&r, &spec, &facts, "x86-64-v3"));
  return r;
}

// Reads a request from all its bytes.
static lb_status read_request(const uint8_t *bytes, lb_request *out) {
  lb_message_header head;
  LB_TRY(lb_header_read(bytes, LB_MESSAGE_REQUEST, &head));
  return lb_request_read(&head, bytes + LB_HEADER_BYTES, out);
}

static void requests_survive_a_round_trip(void **state) {
  (void)state;
  lb_request r = a_request(), got;
  uint8_t bytes[LB_REQUEST_BYTES];
  lb_message_header head;
  lb_request_write(&r, 77, bytes);
  assert_ok(lb_header_read(bytes, LB_MESSAGE_REQUEST, &head));
  assert_int_equal(head.id, 77);
  assert_int_equal(head.size, LB_REQUEST_BYTES - LB_HEADER_BYTES);
  assert_ok(lb_request_read(&head, bytes + LB_HEADER_BYTES, &got));
  assert_memory_equal(&got, &r, sizeof r);
}

static void flipped_bits_of_a_request_are_detected(void **state) {
  (void)state;
  lb_request r = a_request(), got;
  uint8_t bytes[LB_REQUEST_BYTES];
  lb_request_write(&r, 1, bytes);
  for (size_t i = 0; i < 8 * sizeof bytes; i++) {
    bytes[i / 8] ^= (uint8_t)(1u << i % 8);
    lb_status st = read_request(bytes, &got);
    assert_true(lb_failed(st));
    lb_status_drop(st);
    bytes[i / 8] ^= (uint8_t)(1u << i % 8);
  }
  assert_ok(read_request(bytes, &got));
}

static void invalid_requests_in_valid_messages_are_rejected(void **state) {
  (void)state;
  lb_request r = a_request(), got;
  uint8_t bytes[LB_REQUEST_BYTES];
  r.spec.n_nodes = 200;
  lb_request_write(&r, 1, bytes);
  assert_rejected(read_request(bytes, &got), "spec");
  r = a_request();
  r.facts.list[3].kind = 9;
  lb_request_write(&r, 1, bytes);
  assert_rejected(read_request(bytes, &got), "facts");
  r = a_request();
  memset(r.target, 'x', sizeof r.target);
  lb_request_write(&r, 1, bytes);
  assert_rejected(read_request(bytes, &got), "target");
  r = a_request();
  r.target[3] = '\n';
  lb_request_write(&r, 1, bytes);
  assert_rejected(read_request(bytes, &got), "target");
}

static void too_long_targets_are_rejected(void **state) {
  (void)state;
  lb_request r = a_request(), other;
  char target[LB_TARGET_TEXT + 1] = {0};
  memset(target, '+', LB_TARGET_TEXT);
  assert_rejected(lb_request_init(&other, &r.spec, &r.facts, target), "192");
  target[LB_TARGET_TEXT - 1] = '\0';
  assert_ok(lb_request_init(&other, &r.spec, &r.facts, target));
}

static void headers_of_wrong_version_kind_or_size_are_rejected(void **state) {
  (void)state;
  lb_request r = a_request();
  uint8_t bytes[LB_REQUEST_BYTES];
  lb_message_header head, other;
  lb_request_write(&r, 1, bytes);
  memcpy(&head, bytes, sizeof head);

  assert_rejected(lb_header_read(bytes, LB_MESSAGE_RESPONSE, &other), "kind");
  head.version++;
  memcpy(bytes, &head, sizeof head);
  assert_rejected(lb_header_read(bytes, LB_MESSAGE_REQUEST, &other), "version");
  head.version--;
  head.size = UINT32_MAX;
  memcpy(bytes, &head, sizeof head);
  assert_rejected(lb_header_read(bytes, LB_MESSAGE_REQUEST, &other), "bytes");
  head.kind = LB_MESSAGE_RESPONSE;
  memcpy(bytes, &head, sizeof head);
  assert_rejected(lb_header_read(bytes, LB_MESSAGE_RESPONSE, &other), "bytes");
}

// -- responses ----------------------------------------------------------------

static lb_response an_object(void) {
  lb_response a = {
      .info = {.abi = LB_KERNEL_ABI, .compile_us = 4000, .generator = 12},
      .bytes = {(const uint8_t *)"\177ELF...", 7},
  };
  strcpy(a.info.entry, "limber_kernel");
  strcpy(a.info.target, "x86-64-v4");
  return a;
}

// Writes all bytes of `a`; returns their number.
static size_t write_response(const lb_response *a, uint8_t *bytes) {
  lb_response_write(a, 5, bytes);
  if (a->bytes.size)
    memcpy(bytes + LB_RESPONSE_BYTES, a->bytes.data, a->bytes.size);
  return LB_RESPONSE_BYTES + a->bytes.size;
}

static lb_status read_response(const uint8_t *bytes, size_t n,
                               lb_response *out) {
  lb_message_header head;
  LB_TRY(lb_header_read(bytes, LB_MESSAGE_RESPONSE, &head));
  if (head.size != n - LB_HEADER_BYTES)
    return lb_error(LB_INVALID, "another size");
  return lb_response_read(&head, bytes + LB_HEADER_BYTES, out);
}

static void objects_survive_a_round_trip(void **state) {
  (void)state;
  lb_response a = an_object(), got;
  uint8_t bytes[1024];
  size_t n = write_response(&a, bytes);
  assert_ok(read_response(bytes, n, &got));
  assert_int_equal(got.code, LB_CODE_OK);
  assert_memory_equal(&got.info, &a.info, sizeof a.info);
  assert_int_equal(got.bytes.size, 7);
  assert_memory_equal(got.bytes.data, "\177ELF...", 7);
}

static void errors_are_read_with_their_message(void **state) {
  (void)state;
  lb_response a = {.code = LB_UNSUPPORTED,
                   .bytes = {(const uint8_t *)"why", 3}};
  lb_response got;
  uint8_t bytes[1024];
  size_t n = write_response(&a, bytes);
  assert_ok(read_response(bytes, n, &got));
  assert_int_equal(got.code, LB_UNSUPPORTED);
  assert_memory_equal(got.bytes.data, "why", 3);
}

static void flipped_bits_of_a_response_are_detected(void **state) {
  (void)state;
  lb_response a = an_object(), got;
  uint8_t bytes[1024];
  size_t n = write_response(&a, bytes);
  for (size_t i = 0; i < 8 * n; i++) {
    bytes[i / 8] ^= (uint8_t)(1u << i % 8);
    lb_status st = read_response(bytes, n, &got);
    assert_true(lb_failed(st));
    lb_status_drop(st);
    bytes[i / 8] ^= (uint8_t)(1u << i % 8);
  }
}

static void assert_response_rejected(const lb_response *a, const char *part) {
  static uint8_t bytes[2 * LB_MAX_ERROR_TEXT + LB_RESPONSE_BYTES];
  lb_response got;
  size_t n = write_response(a, bytes);
  assert_rejected(read_response(bytes, n, &got), part);
}

static void invalid_responses_in_valid_messages_are_rejected(void **state) {
  (void)state;
  static uint8_t much[LB_MAX_ERROR_TEXT + 1];
  lb_response a = an_object();
  a.info.abi++;
  assert_response_rejected(&a, "ABI");
  a = an_object();
  a.bytes.size = 0;
  assert_response_rejected(&a, "empty");
  a = an_object();
  memset(a.info.entry, 'e', sizeof a.info.entry);
  assert_response_rejected(&a, "not printable text");
  a = an_object();
  a.info.entry[0] = '\0';
  assert_response_rejected(&a, "not printable text");
  a = an_object();
  a.code = LB_IO;
  assert_response_rejected(&a, "malformed error");
  a = (lb_response){.code = (lb_code)99};
  assert_response_rejected(&a, "unknown code");
  a = (lb_response){.code = LB_OOM, .bytes = {much, sizeof much}};
  assert_response_rejected(&a, "malformed error");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(requests_survive_a_round_trip),
      cmocka_unit_test(flipped_bits_of_a_request_are_detected),
      cmocka_unit_test(invalid_requests_in_valid_messages_are_rejected),
      cmocka_unit_test(too_long_targets_are_rejected),
      cmocka_unit_test(headers_of_wrong_version_kind_or_size_are_rejected),
      cmocka_unit_test(objects_survive_a_round_trip),
      cmocka_unit_test(errors_are_read_with_their_message),
      cmocka_unit_test(flipped_bits_of_a_response_are_detected),
      cmocka_unit_test(invalid_responses_in_valid_messages_are_rejected),
  };
  return cmocka_run_group_tests_name("message", tests, NULL, NULL);
}
