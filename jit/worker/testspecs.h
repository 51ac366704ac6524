// worker/testspecs.h -- For tests: specs of each form.
#ifndef LB_WORKER_TESTSPECS_H
#define LB_WORKER_TESTSPECS_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <string.h>

#include "spec/message.h"

static inline void assert_ok(lb_status st) {
  if (!lb_failed(st)) return;
  print_error("%s (%s)\n", lb_status_message(st), lb_status_where(st));
  lb_status_drop(st);
  fail();
}

static inline void assert_error(lb_status st, lb_code code, const char *part) {
  if (lb_status_code(st) != code || !strstr(lb_status_message(st), part)) {
    print_error("wanted %s '%s', got %s '%s'\n", lb_code_name(code), part,
                lb_code_name(lb_status_code(st)), lb_status_message(st));
    lb_status_drop(st);
    fail();
  }
  lb_status_drop(st);
}

static inline uint8_t node(lb_spec_builder *b, lb_sop op, uint8_t x,
                           uint8_t y) {
  uint8_t src[] = {x, y};
  return lb_spec_node(b, op, LB_F32, src, lb_sop_infos[op].n_src);
}

static inline lb_spec finish_spec(lb_spec_builder *b, uint8_t out) {
  lb_spec spec;
  lb_spec_output(b, out, LB_LAYOUT_FULL);
  assert_ok(lb_spec_finish(b, &spec));
  return spec;
}

// x + bias
static inline lb_spec spec_of_eltwise(void) {
  lb_spec_builder b;
  lb_spec_begin(&b, LB_FORM_ELTWISE);
  uint8_t x = lb_spec_input(&b, LB_F32, LB_LAYOUT_FULL);
  uint8_t y = lb_spec_input(&b, LB_F32, LB_LAYOUT_PER_COL);
  return finish_spec(&b, node(&b, LB_S_ADD, x, y));
}

// softmax
static inline lb_spec spec_of_row_reduce(void) {
  lb_spec_builder b;
  lb_spec_begin(&b, LB_FORM_ROW_REDUCE);
  uint8_t x = lb_spec_input(&b, LB_F32, LB_LAYOUT_FULL);
  uint8_t e = node(&b, LB_S_SUB, x, node(&b, LB_S_RMAX, x, 0));
  e = node(&b, LB_S_EXP, e, 0);
  return finish_spec(&b, node(&b, LB_S_DIV, e, node(&b, LB_S_RSUM, e, 0)));
}

// max(a * b + bias, 0), b in panels
static inline lb_spec spec_of_matmul(void) {
  lb_spec_builder b;
  lb_spec_begin(&b, LB_FORM_MATMUL);
  lb_spec_input(&b, LB_F32, LB_LAYOUT_FULL);
  lb_spec_input(&b, LB_F32, LB_LAYOUT_PANEL);
  uint8_t bias = lb_spec_input(&b, LB_F32, LB_LAYOUT_PER_COL);
  uint8_t zero = lb_spec_scalar(&b, LB_F32);
  uint8_t y =
      node(&b, LB_S_ADD, lb_spec_node(&b, LB_S_ACC, LB_F32, NULL, 0), bias);
  return finish_spec(&b, node(&b, LB_S_MAX, y, zero));
}

// softmax(q k^T * scale + mask) v, with one mask for all rows
static inline lb_spec spec_of_attention(void) {
  lb_spec_builder b;
  lb_spec_begin(&b, LB_FORM_ATTENTION);
  for (int i = 0; i < 3; i++) lb_spec_input(&b, LB_F32, LB_LAYOUT_FULL);
  uint8_t mask = lb_spec_input(&b, LB_F32, LB_LAYOUT_PER_COL);
  uint8_t scale = lb_spec_scalar(&b, LB_F32);
  uint8_t acc = lb_spec_node(&b, LB_S_ACC, LB_F32, NULL, 0);
  uint8_t score = node(&b, LB_S_MUL, acc, scale);
  return finish_spec(&b, node(&b, LB_S_ADD, score, mask));
}

static inline lb_facts facts_of_attention(void) {
  lb_facts f = {0};
  lb_facts_add(&f, LB_ASSUME_AT_MOST, LB_DIM_K, 64);
  return f;
}

// max(conv(a, b) + bias, 0)
static inline lb_spec spec_of_conv(void) {
  lb_spec_builder b;
  lb_spec_begin(&b, LB_FORM_CONV);
  lb_spec_input(&b, LB_F32, LB_LAYOUT_FULL);
  lb_spec_input(&b, LB_F32, LB_LAYOUT_PANEL);
  uint8_t bias = lb_spec_input(&b, LB_F32, LB_LAYOUT_PER_COL);
  uint8_t zero = lb_spec_scalar(&b, LB_F32);
  uint8_t y = node(&b, LB_S_ADD, lb_spec_acc(&b, LB_ACC_DOT, LB_F32), bias);
  return finish_spec(&b, node(&b, LB_S_MAX, y, zero));
}

// The maximum of a window, or its dot product with w.
static inline lb_spec spec_of_window(lb_acc kind) {
  lb_spec_builder b;
  lb_spec_begin(&b, LB_FORM_WINDOW);
  lb_spec_input(&b, LB_F32, LB_LAYOUT_FULL);
  if (kind == LB_ACC_DOT) lb_spec_input(&b, LB_F32, LB_LAYOUT_FULL);
  return finish_spec(&b, lb_spec_acc(&b, kind, LB_F32));
}

static inline lb_request request_of(lb_spec spec, const char *target) {
  lb_request r;
  assert_ok(lb_request_init(&r, &spec, &(lb_facts){0}, target));
  return r;
}

#endif
