// primitive/fields.h -- fields of a descriptor by number. Internal to the room.
#ifndef LB_PRIMITIVE_FIELDS_H
#define LB_PRIMITIVE_FIELDS_H

#include "primitive/desc.h"

typedef struct lb_desc_field_info {
  const char *name;
  lb_dtype type;  // LB_I32, LB_I64 or LB_F32
  size_t offset, count;
  int64_t low, high;  // of integers
} lb_desc_field_info;
extern const lb_desc_field_info lb_desc_field_infos[LB_DESC_FIELD_COUNT];

int64_t lb_desc_field_int(const lb_desc_field_info *f,
                          const limber_primitive_desc *d, size_t i);
float lb_desc_field_float(const lb_desc_field_info *f,
                          const limber_primitive_desc *d, size_t i);
bool lb_desc_field_is_zero(const lb_desc_field_info *f,
                           const limber_primitive_desc *d);

#endif
