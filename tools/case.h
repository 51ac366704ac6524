// tools/case.h -- cases of `limber primitive`. A case is one line of text,
// which is also how a failure is reported.
//
//   KIND [alg=NAME] in=OPERAND,... [FIELD=VALUE ...] [post=POST,...]
//        [deterministic=1] [reusable=0|1]
//
// OPERAND is DTYPE:DIMS, followed by :last for the channels-last layout and
// :const for a constant, or - if it is absent. f32:?5x33 has a runtime dim that
// is 5 when executed. POST is relu, leaky_relu:0.1, add:f32:1x33, sum or
// sum:0.5. Lists are written as 2x2.
#ifndef LIMBER_TOOLS_CASE_H
#define LIMBER_TOOLS_CASE_H

#include "cli.h"

#define CASE_INPUTS (LIMBER_MAX_OPERANDS + LIMBER_MAX_POST_OPS)

typedef struct case_post {
  int alg;  // 0: a sum
  float alpha, beta;
  limber_operand in;       // binary: its operand
  limber_tensor elements;  // given at execution, or of the constant; owned
} case_post;

typedef struct primitive_case {
  limber_primitive_desc desc;
  case_post post[LIMBER_MAX_POST_OPS];
  size_t n_post;
  limber_tensor elements[LIMBER_MAX_OPERANDS];  // as in case_post
  int deterministic, reusable;                  // reusable -1: not given
  uint64_t state;                               // of the random elements
} primitive_case;

// Parses a case and draws its elements. Elements depend only on the case's
// text, and those of a constant only on the text of the operand, so that
// several cases can share a primitive.
bool case_read(const char *text, primitive_case *c, problem *p);
void case_fini(primitive_case *c);

// Creates the attributes of the case. `reference`: run on the reference
// implementation; `bare`: without post-operations.
bool case_attr(const primitive_case *c, bool reference, bool bare,
               limber_attr **out, problem *p);

// Returns the number of inputs, and the inputs in the order of an execution.
// `bare` is as above. Data is borrowed from the case.
size_t case_inputs(const primitive_case *c, bool bare, limber_tensor *out);

// Draws the operands of sums, which have the type and dims of the result; a
// bare execution determines these.
bool case_add_sums(primitive_case *c, const limber_tensor *result, problem *p);

// Writes random case `number` of a seed, biased towards edge cases. `kind` 0:
// any kind.
void case_draw(uint64_t seed, uint64_t number, int kind, char *out, size_t cap);

#endif
