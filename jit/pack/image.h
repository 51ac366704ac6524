// pack/image.h -- The bytes of a pack: an index, and code.
#ifndef LB_PACK_IMAGE_H
#define LB_PACK_IMAGE_H

#include "base/blob.h"
#include "device/cpu/pack.h"
#include "pack/list.h"

typedef struct lb_pack_image {  // {0} is empty
  lb_pack_entry *entries;       // owned
  size_t n, cap;
  lb_strbuf specs, code;  // bytes
} lb_pack_image;

// Adds the kernel in `object`, which must be position-independent:
// LB_UNSUPPORTED if it contains an absolute address.
lb_status lb_pack_image_add(lb_pack_image *p, const lb_pack_item *item,
                            lb_span object);

// Sorts the entries and appends the index to `out`, with a header that does not
// contain the position of the code yet.
lb_status lb_pack_image_index(lb_pack_image *p, lb_strbuf *out);
void lb_pack_image_fini(lb_pack_image *p);

#endif
