// primitive/fields.h -- access to the fields of a descriptor by number.
// Internal to this module.
#ifndef LB_PRIMITIVE_FIELDS_H
#define LB_PRIMITIVE_FIELDS_H

#include "primitive/desc.h"

typedef struct lb_desc_field_info {
  const char *name;
  lb_dtype type;  // LB_I32, LB_I64 or LB_F32
  size_t offset, count;
  int64_t low, high;  // the range of an integer field
} lb_desc_field_info;
extern const lb_desc_field_info lb_desc_field_infos[LB_DESC_FIELD_COUNT];

// Return element i of an integer field and of a float field.
int64_t lb_desc_field_int(const lb_desc_field_info *f,
                          const limber_primitive_desc *d, size_t i);
float lb_desc_field_float(const lb_desc_field_info *f,
                          const limber_primitive_desc *d, size_t i);
// True if all elements of the field are zero.
bool lb_desc_field_is_zero(const lb_desc_field_info *f,
                           const limber_primitive_desc *d);

#endif
