// primitive/desc.h -- descriptors and attributes of primitives: their tables,
// validation, cache keys and text form. All functions are pure; any thread may
// call them.
//
// (1) A key is plain bytes: the contents of a descriptor and its attributes,
//     without padding, pointers, or dims beyond the rank. Equal keys mean equal
//     primitives, except for the elements of constants: a key holds only their
//     hash.
// (2) Computing a key validates nothing: an invalid descriptor has a key of its
//     own, so it never shares one with a valid descriptor.
#ifndef LB_PRIMITIVE_DESC_H
#define LB_PRIMITIVE_DESC_H

#include "base/strbuf.h"
#include "base/tensor.h"
#include "graph/op.h"
#include "limber/limber.h"

enum {  // masks of axes that may have runtime dims
  LB_AXES_NONE = 0,
  LB_AXES_ALL = (1 << LB_MAX_RANK) - 1,
};

// The fields of a descriptor; 1 << field is its bit in lb_kind_info.fields.
typedef enum lb_desc_field {
#define LB_DESC_FIELD(id, ...) LB_DESC_FIELD_##id,
#include "primitive/primitives.def"
  LB_DESC_FIELD_COUNT
} lb_desc_field;

typedef struct lb_kind_info {
  const char *name;
  uint32_t min_in, max_in;  // number of operands
  int dflt;                 // the limber_alg that 0 stands for; 0: none
  uint32_t fields;          // bits of the fields that the kind reads
  struct {
    const char *name;
    uint32_t runtime;  // mask of axes that may have runtime dims
  } in[LIMBER_MAX_OPERANDS];
} lb_kind_info;
extern const lb_kind_info lb_kind_infos[LIMBER_PRIMITIVE_KINDS];

// Which of alpha and beta an eltwise operator reads.
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
  float alpha, beta;  // SUM: alpha is the scale
  limber_operand in;  // BINARY only; its data, if any, is borrowed
} lb_post;

struct limber_attr {
  int32_t reusable;  // reusable kernels are 1: preferred, -1: not, 0: unset
  int32_t deterministic, reference, user_scratch;
  uint32_t n_post;
  lb_post post[LIMBER_MAX_POST_OPS];
};
extern const limber_attr lb_attr_none;  // attributes with nothing set

// -- descriptors

// Everything that defines a primitive; `attr` is never NULL.
typedef struct lb_desc {
  const limber_primitive_desc *desc;
  const limber_attr *attr;
} lb_desc;

// Validates a descriptor; the error names the wrong field.
lb_status lb_desc_check(const lb_desc *d);
// Returns the alg, with 0 replaced by the kind's default.
int lb_desc_alg(const limber_primitive_desc *d);
// Returns the number of operands up to the last one that is present.
uint32_t lb_desc_operands(const limber_primitive_desc *d);

// Returns the bytes of an operand that has no runtime dims.
size_t lb_desc_operand_bytes(const limber_operand *o);
bool lb_desc_operand_is_present(const limber_operand *o);
bool lb_desc_operand_is_channels_last(
    const limber_operand *o);  // channels last
bool lb_desc_has_runtime_dims(const lb_desc *d);

// -- keys

#define LB_KEY_OPERAND (16 + 8 * LIMBER_MAX_RANK + 16)
#define LB_KEY_MAX                               \
  (1024 + LIMBER_MAX_OPERANDS * LB_KEY_OPERAND + \
   LIMBER_MAX_POST_OPS * (LB_KEY_OPERAND + 16))

typedef struct lb_key_header {  // the first bytes of a key
  int32_t kind, alg, n_in, n_post;
  int32_t reusable, deterministic, reference, user_scratch;
} lb_key_header;

// Writes the key and returns its size. If an operand has data, its dims are
// trusted to give the size of the data, unless they are negative.
size_t lb_desc_key(const lb_desc *d, uint8_t out[LB_KEY_MAX]);

// Appends the text form, "matmul in=f32:?x33,f32:33x17:const post=relu", which
// `limber primitive` reads as a case.
void lb_desc_print(const lb_desc *d, lb_strbuf *out);

#endif
