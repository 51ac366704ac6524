// worker/serve_test.c -- Every request gets a response, whatever it holds.
#include "worker/testspecs.h"

#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include "worker/serve.h"

typedef struct connection {
  int ours, theirs;
  pthread_t thread;
  lb_status result;  // of lb_serve
} connection;

static void *serve(void *user) {
  connection *l = user;
  lb_jit *jit;
  assert_ok(lb_jit_new(NULL, &jit));
  l->result = lb_serve(l->theirs, -1, jit);
  lb_jit_free(jit);
  close(l->theirs);
  return NULL;
}

static void open_connection(connection *l) {
  int pair[2];
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
  *l = (connection){.ours = pair[0], .theirs = pair[1]};
  assert_int_equal(pthread_create(&l->thread, NULL, serve, l), 0);
}

static lb_status close_connection(connection *l) {
  shutdown(l->ours, SHUT_WR);
  pthread_join(l->thread, NULL);
  close(l->ours);
  return l->result;
}

static void send_bytes(connection *l, const void *p, size_t n) {
  assert_int_equal(send(l->ours, p, n, MSG_NOSIGNAL), n);
}

static uint8_t buffer[1 << 20];

static lb_response receive(connection *l, uint64_t id) {
  lb_message_header header;
  lb_response a;
  assert_int_equal(recv(l->ours, buffer, LB_HEADER_BYTES, MSG_WAITALL),
                   LB_HEADER_BYTES);
  assert_ok(lb_header_read(buffer, LB_MESSAGE_RESPONSE, &header));
  assert_int_equal(header.id, id);
  assert_true(header.size <= sizeof buffer);
  assert_int_equal(recv(l->ours, buffer, header.size, MSG_WAITALL),
                   header.size);
  assert_ok(lb_response_read(&header, buffer, &a));
  return a;
}

static lb_response request(connection *l, const lb_request *r, uint64_t id) {
  uint8_t bytes[LB_REQUEST_BYTES];
  lb_request_write(r, id, bytes);
  send_bytes(l, bytes, sizeof bytes);
  return receive(l, id);
}

static void assert_response(const lb_response *a, lb_code code,
                            const char *part) {
  assert_int_equal(a->code, code);
  if (!memmem(a->bytes.data, a->bytes.size, part, strlen(part))) {
    print_error("wanted '%s', got '%.*s'\n", part, (int)a->bytes.size,
                (const char *)a->bytes.data);
    fail();
  }
}

static void every_form_can_be_compiled(void **state) {
  (void)state;
  connection l;
  open_connection(&l);
  lb_spec specs[] = {spec_of_eltwise(), spec_of_row_reduce(),
                     spec_of_matmul(),  spec_of_attention(),
                     spec_of_conv(),    spec_of_window(LB_ACC_DOT)};
  for (uint64_t i = 0; i < 6; i++) {
    lb_request r = request_of(specs[i], "x86-64-v4+avx512vnni+amx-fp16");
    if (i == 3) r.facts = facts_of_attention();
    lb_response a = request(&l, &r, i);
    if (a.code) print_error("%.*s\n", (int)a.bytes.size, a.bytes.data);
    assert_int_equal(a.code, LB_CODE_OK);
    assert_string_equal(a.info.entry, "limber_kernel");
    assert_string_equal(a.info.target, r.target);
    assert_true(a.info.compile_us > 0);
    assert_int_equal(a.info.checks, 0);  // there is no loader
    assert_memory_equal(a.bytes.data, "\177ELF", 4);
  }
  assert_ok(close_connection(&l));
}

// 12 x 64 accumulators are 48 vectors, and there are 32 registers.
static void a_tile_that_spills_is_reduced(void **state) {
  (void)state;
  lb_request r = request_of(spec_of_matmul(), "x86-64-v4");
  lb_facts_add(&r.facts, LB_CHOOSE_TILE, LB_DIM_ROWS, 12);
  lb_facts_add(&r.facts, LB_CHOOSE_TILE, LB_DIM_COLS, 64);
  lb_jit *jit;
  lb_blob object;
  lb_object_info info;
  assert_ok(lb_jit_new(NULL, &jit));
  assert_ok(lb_jit_compile(jit, &r, &object, &info));
  assert_int_equal(info.spills, 0);
  lb_blob_fini(&object);
  lb_jit_free(jit);
}

static void invalid_requests_get_errors_and_serving_continues(void **state) {
  (void)state;
  connection l;
  lb_request good = request_of(spec_of_eltwise(), "x86-64-v3"), r = good;
  open_connection(&l);
  r.spec.nodes[2].op = 255;
  lb_response a = request(&l, &r, 1);
  assert_response(&a, LB_INVALID, "spec: node 2");
  r = good;
  r.facts.list[0].kind = 77;
  a = request(&l, &r, 2);
  assert_response(&a, LB_INVALID, "facts");
  r = request_of(spec_of_eltwise(), "x86-64-v2");
  a = request(&l, &r, 3);
  assert_response(&a, LB_UNSUPPORTED, "x86-64-v2");
  r = request_of(spec_of_eltwise(), "pdp-11");
  a = request(&l, &r, 4);
  assert_response(&a, LB_INVALID, "unknown instruction set 'pdp-11'");
  r = request_of(spec_of_eltwise(), "x86-64-v3+%s");
  a = request(&l, &r, 5);
  assert_response(&a, LB_INVALID, "unknown instruction set '%s'");
  a = request(&l, &good, 6);
  assert_int_equal(a.code, LB_CODE_OK);
  assert_ok(close_connection(&l));
}

static void a_corrupt_body_gets_an_error_and_serving_continues(void **state) {
  (void)state;
  connection l;
  lb_request r = request_of(spec_of_eltwise(), "x86-64-v3");
  uint8_t bytes[LB_REQUEST_BYTES];
  open_connection(&l);
  lb_request_write(&r, 9, bytes);
  bytes[LB_HEADER_BYTES + 20] ^= 1;
  send_bytes(&l, bytes, sizeof bytes);
  lb_response a = receive(&l, 9);
  assert_response(&a, LB_INVALID, "checksum");
  a = request(&l, &r, 10);
  assert_int_equal(a.code, LB_CODE_OK);
  assert_ok(close_connection(&l));
}

static void bytes_without_a_message_header_end_serving(void **state) {
  (void)state;
  connection l;
  open_connection(&l);
  send_bytes(&l, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", 35);
  lb_response a = receive(&l, 0);
  assert_response(&a, LB_INVALID, "wrong magic number");
  assert_error(close_connection(&l), LB_INVALID, "wrong magic number");
}

static void a_connection_closed_inside_a_request_is_an_error(void **state) {
  (void)state;
  connection l;
  lb_request r = request_of(spec_of_eltwise(), "x86-64-v3");
  uint8_t bytes[LB_REQUEST_BYTES];
  open_connection(&l);
  lb_request_write(&r, 1, bytes);
  send_bytes(&l, bytes, 100);
  assert_error(close_connection(&l), LB_IO, "closed inside a request");
  open_connection(&l);
  assert_ok(close_connection(&l));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_form_can_be_compiled),
      cmocka_unit_test(a_tile_that_spills_is_reduced),
      cmocka_unit_test(invalid_requests_get_errors_and_serving_continues),
      cmocka_unit_test(a_corrupt_body_gets_an_error_and_serving_continues),
      cmocka_unit_test(bytes_without_a_message_header_end_serving),
      cmocka_unit_test(a_connection_closed_inside_a_request_is_an_error),
  };
  return cmocka_run_group_tests_name("serve", tests, NULL, NULL);
}
