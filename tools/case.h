// tools/case.h -- cases of `limber primitive`: one line of text each, which is
// also how a failure is told.
//
//   KIND [alg=NAME] in=OPERAND,... [FIELD=VALUE ...] [post=POST,...]
//        [deterministic=1] [reusable=0|1]
//
// OPERAND is DTYPE:DIMS, then :last (channels) and :const if it is so, or - if
// it is absent: f32:?5x33 has a runtime dim that is 5 when executed. POST is
// relu, leaky_relu:0.1, add:f32:1x33, sum or sum:0.5. Lists are 2x2.
#ifndef LIMBER_TOOLS_CASE_H
#define LIMBER_TOOLS_CASE_H

#include "cli.h"

#define CASE_INPUTS (LIMBER_MAX_OPERANDS + LIMBER_MAX_POST_OPS)

typedef struct case_post {
  int alg;  // 0: a sum
  float alpha, beta;
  limber_operand in;       // of a binary one
  limber_tensor elements;  // at execution, or those of the constant; owned
} case_post;

typedef struct primitive_case {
  limber_primitive_desc desc;
  case_post post[LIMBER_MAX_POST_OPS];
  size_t n_post;
  limber_tensor elements[LIMBER_MAX_OPERANDS];  // likewise
  int deterministic, reusable;                  // reusable -1: not said
  uint64_t state;                               // what elements are drawn from
} primitive_case;

// Elements are drawn: which ones depends on the text alone, those of a constant
// on the text of the operand, so that cases of one primitive share it.
bool case_read(const char *text, primitive_case *c, problem *p);
void case_fini(primitive_case *c);

// Attributes of the case; `reference`: on plain C, `bare`: without its
// post-operations.
bool case_attr(const primitive_case *c, bool reference, bool bare,
               limber_attr **out, problem *p);

// Inputs in the order of an execution; how many. `bare` as above. Data is
// borrowed from the case.
size_t case_inputs(const primitive_case *c, bool bare, limber_tensor *out);

// Operands of sums look like the result, which a bare execution tells.
bool case_add_sums(primitive_case *c, const limber_tensor *result, problem *p);

// A random case, edge-biased, by number. `kind` 0: any.
void case_draw(uint64_t seed, uint64_t number, int kind, char *out, size_t cap);

#endif
