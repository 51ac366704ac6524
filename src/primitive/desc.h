// primitive/desc.h -- descriptors and attributes: what they may say, their key,
// and the same as text.
//
// (1) A key is plain bytes: what a descriptor and its attributes say, without
//     padding, pointers, or dims beyond a rank. Equal keys, equal primitives,
//     but for the elements of constants, of which a key has a hash.
// (2) Making a key checks nothing: what is wrong is wrong under its own key.
#ifndef LB_PRIMITIVE_DESC_H
#define LB_PRIMITIVE_DESC_H

#include "base/strbuf.h"
#include "base/tensor.h"
#include "graph/op.h"
#include "limber/limber.h"

enum {
  LB_AXES_NONE = 0,
  LB_AXES_ALL = (1 << LB_MAX_RANK) - 1,
};

// Fields of a descriptor, as bits.
typedef enum lb_desc_field {
#define LB_DESC_FIELD(id, ...) LB_DESC_FIELD_##id,
#include "primitive/primitives.def"
  LB_DESC_FIELD_COUNT
} lb_desc_field;

typedef struct lb_kind_info {
  const char *name;
  uint32_t min_in, max_in;
  int dflt;  // limber_alg that 0 stands for; 0: none
  uint32_t fields;
  struct {
    const char *name;
    uint32_t runtime;  // axes whose dims may be runtime dims
  } in[LIMBER_MAX_OPERANDS];
} lb_kind_info;
extern const lb_kind_info lb_kind_infos[LIMBER_PRIMITIVE_KINDS];

typedef enum lb_params {
  LB_PARAMS_NONE,
  LB_PARAMS_ALPHA,
  LB_PARAMS_BOTH
} lb_params;
typedef struct lb_alg_info {
  const char *name;
  int kind;
  lb_op op;
  lb_params params;
} lb_alg_info;
extern const lb_alg_info lb_alg_infos[LIMBER_ALGS];

typedef enum lb_post_kind {
  LB_POST_ELTWISE,
  LB_POST_BINARY,
  LB_POST_SUM
} lb_post_kind;
typedef struct lb_post {
  int32_t kind, alg;
  float alpha, beta;  // of a sum: alpha is the scale
  limber_operand in;  // BINARY; its data, if any, is borrowed
} lb_post;

struct limber_attr {
  int32_t reusable;  // 1: preferred, -1: not, 0: not said
  int32_t deterministic, reference, user_scratch;
  uint32_t n_post;
  lb_post post[LIMBER_MAX_POST_OPS];
};
extern const limber_attr lb_attr_none;  // in which nothing was set

// -- descriptors

// The whole of what a primitive is made from; `attr` is never NULL.
typedef struct lb_desc {
  const limber_primitive_desc *desc;
  const limber_attr *attr;
} lb_desc;

// LB_INVALID names the field that is wrong.
lb_status lb_desc_check(const lb_desc *d);
int lb_desc_alg(const limber_primitive_desc *d);  // with the kind's default
uint32_t lb_desc_operands(const limber_primitive_desc *d);  // up to the last

// Elements of an operand with constant dims.
size_t lb_desc_operand_bytes(const limber_operand *o);
bool lb_desc_operand_has(const limber_operand *o);
bool lb_desc_operand_is_last(const limber_operand *o);  // channels last
bool lb_desc_has_runtime(const lb_desc *d);             // any runtime dim

// -- keys

#define LB_KEY_OPERAND (16 + 8 * LIMBER_MAX_RANK + 16)
#define LB_KEY_MAX                               \
  (1024 + LIMBER_MAX_OPERANDS * LB_KEY_OPERAND + \
   LIMBER_MAX_POST_OPS * (LB_KEY_OPERAND + 16))

typedef struct lb_key_head {  // what a key begins with
  int32_t kind, alg, n_in, n_post;
  int32_t reusable, deterministic, reference, user_scratch;
} lb_key_head;

// Bytes written. Dims of constants are trusted to be right where data is set,
// unless they are negative.
size_t lb_desc_key(const lb_desc *d, uint8_t out[LB_KEY_MAX]);

// "matmul in=f32:?x33,f32:33x17:const post=relu": what `limber primitive` reads
// as a case.
void lb_desc_print(const lb_desc *d, lb_strbuf *out);

#endif
