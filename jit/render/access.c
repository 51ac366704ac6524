// render/access.c -- Memory accesses, with LLVM's masked intrinsics.
//
// These intrinsics take vectors only. A masked scalar is lane 0 of two lanes,
// the other of which is off.
#include "render/access.h"

#include "render/lanes.h"

static bool given(lb_lv v) { return v.kind != LB_L_POISON; }

static lb_lt memory_type(const lb_access *a) {
  return lt(a->dtype == LB_BOOL ? LB_E_I8 : lb_elem_of(a->dtype), a->lanes);
}

static lb_lv from_memory(lb_em *e, const lb_access *a, lb_lv v) {
  if (a->dtype != LB_BOOL) return v;
  return lb_em_compare(e, "icmp ne", v, lb_em_bits(v.type, 0));
}

static lb_lv to_memory(lb_em *e, const lb_access *a, lb_lv v) {
  return a->dtype == LB_BOOL ? lb_em_convert(e, "zext", v, LB_E_I8) : v;
}

static lb_lv align_of(const lb_access *a) {
  return lb_em_bits(lt(LB_E_I32, 1), a->align);
}

// x itself, or a scalar as lane 0 of two.
static lb_lv at_least_two(lb_em *e, lb_lv x) {
  if (x.type.lanes > 1) return x;
  return lb_em_insert(e, lb_em_bits(lt(x.type.elem, 2), 0), x, 0);
}

static lb_lv mask_of(lb_em *e, const lb_access *a) {
  if (given(a->mask)) return at_least_two(e, a->mask);
  return lb_em_bits(lt(LB_E_I1, a->lanes), 1);
}

static lb_lv other_of(lb_em *e, const lb_access *a) {
  if (!given(a->other)) return lb_em_bits(memory_type(a), 0);
  return to_memory(e, a, a->other);
}

// "llvm.masked.gather.v16f32.v16p0"
static lb_lv masked(lb_em *e, const char *what, lb_lt data, lb_lt pointer,
                    lb_lt result, const lb_lv *args) {
  lb_strbuf name = {0};
  lb_strbuf_printf(&name, "llvm.masked.%s.", what);
  lb_em_mangle(&name, data);
  lb_strbuf_putc(&name, '.');
  lb_em_mangle(&name, pointer);
  lb_lv v = lb_em_call(e, lb_strbuf_str(&name), result, args, 4);
  if (name.failed) e->out.failed = true;
  lb_strbuf_fini(&name);
  return v;
}

lb_lv lb_access_load(lb_em *e, const lb_access *a) {
  if (!given(a->mask))
    return from_memory(
        e, a,
        lb_em_load(e, memory_type(a), a->pointer, a->align, a->invariant));
  lb_lv other = at_least_two(e, other_of(e, a));
  lb_lt t = other.type;
  lb_lv args[] = {a->pointer, align_of(a), mask_of(e, a), other};
  lb_lv v = masked(e, "load", t, a->pointer.type, t, args);
  if (a->lanes == 1) v = lb_em_extract(e, v, 0);
  return from_memory(e, a, v);
}

void lb_access_store(lb_em *e, const lb_access *a, lb_lv value) {
  lb_lv v = to_memory(e, a, value);
  if (!given(a->mask)) {
    lb_em_store(e, v, a->pointer, a->align, a->stream);
    return;
  }
  v = at_least_two(e, v);
  lb_lv args[] = {v, a->pointer, align_of(a), mask_of(e, a)};
  masked(e, "store", v.type, a->pointer.type, lt(LB_E_VOID, 1), args);
}

static lb_access at_index(lb_em *e, const lb_access *a) {
  lb_access at = *a;
  at.pointer = lb_em_gep(e, (lb_elem)memory_type(a).elem, a->pointer, a->index);
  return at;
}

lb_lv lb_access_gather(lb_em *e, const lb_access *a) {
  lb_access at = at_index(e, a);
  if (a->lanes == 1) return lb_access_load(e, &at);
  lb_lv other = other_of(e, a);
  lb_lt t = other.type;
  lb_lv args[] = {at.pointer, align_of(a), mask_of(e, a), other};
  return from_memory(e, a, masked(e, "gather", t, at.pointer.type, t, args));
}

void lb_access_scatter(lb_em *e, const lb_access *a, lb_lv value) {
  lb_access at = at_index(e, a);
  if (a->lanes == 1) {
    lb_access_store(e, &at, value);
    return;
  }
  lb_lv v = to_memory(e, a, value);
  lb_lv args[] = {v, at.pointer, align_of(a), mask_of(e, a)};
  masked(e, "scatter", v.type, at.pointer.type, lt(LB_E_VOID, 1), args);
}
