// render/llvm.c -- walks a kernel and writes LLVM IR.
//
// Terms. The value of a register is whatever SET gave it last: no memory, no
// instruction. Where ways meet it becomes a phi: for each register that a
// block sets and that is older than the block, one at the beginning of a LOOP
// and one at the END of a LOOP or IF.
//
// (1) values[i] is what instruction i made; of a REG, its value now.
// (2) A LOOP is written with its test at the end, and once more before it.
//     Its phis name the values of the next turn ahead; END defines them.
#include "render/render.h"

#include <assert.h>
#include <stdlib.h>

#include "render/access.h"
#include "render/lanes.h"

typedef struct meeting {  // a register that a block sets
  uint32_t reg;
  lb_lv before;
  lb_lv other;  // LOOP: of the next turn, named ahead; IF: of its first block
} meeting;

typedef struct block {
  uint32_t inst;               // LOOP or IF
  uint32_t first, n;           // its meetings
  uint32_t from;               // label in front of it
  uint32_t body, other, exit;  // labels; other: of ELSE
  uint32_t first_end;          // IF: where the first block ended
  lb_lv next;                  // LOOP: of the counter
} block;

typedef struct walk {
  const lb_kernel *k;  // borrowed
  lb_module m;
  lb_em e;
  lb_lv *values;      // owned, as the two below
  uint32_t *partner;  // kir.h
  meeting *meetings;
  uint32_t n_meetings, cap_meetings;
  block blocks[LB_K_MAX_DEPTH];
  uint32_t depth;
  uint32_t label, n_labels;  // where we are; how many there are
  bool fence;                // something streamed
} walk;

typedef lb_status render_fn(walk *w, uint32_t i);

static const lb_kinst *inst(const walk *w, uint32_t i) {
  return &w->k->insts[i];
}

static uint32_t src_of(const walk *w, uint32_t i, uint32_t n) {
  return lb_kernel_srcs(w->k, inst(w, i))[n];
}

static lb_lv value(const walk *w, uint32_t i, uint32_t n) {
  return w->values[src_of(w, i, n)];
}

static lb_ktype type_of(const walk *w, uint32_t i, uint32_t n) {
  return lb_ktype_of(inst(w, src_of(w, i, n)));
}

static lb_lt type_in_llvm(lb_ktype t) {
  return lt(lb_ktype_is_ptr(t) ? LB_E_PTR : lb_elem_of(t.dtype), t.lanes);
}

static const lb_lv absent = {.kind = LB_L_POISON};

// -- leaves ------------------------------------------------------------------

static lb_status r_const(walk *w, uint32_t i) {
  const lb_kinst *in = inst(w, i);
  lb_lt t = type_in_llvm(lb_ktype_of(in));
  w->values[i] = lb_em_bits(t, (uint64_t)in->imm);
  return LB_OK;
}

static lb_status r_param(walk *w, uint32_t i) {
  const lb_kinst *in = inst(w, i);
  lb_lt t = type_in_llvm(lb_ktype_of(in));
  bool byte = t.elem == LB_E_I1;
  lb_lv args = {lt(LB_E_PTR, 1), LB_L_TEMP, 0};  // %t0
  lb_lv at = lb_em_gep(&w->e, LB_E_I64, args,
                       lb_em_bits(lt(LB_E_I64, 1), (uint64_t)in->imm));
  lb_lv v = lb_em_load(&w->e, byte ? lt(LB_E_I8, 1) : t, at, 8, true);
  if (byte) v = lb_em_compare(&w->e, "icmp ne", v, lb_em_bits(v.type, 0));
  w->values[i] = v;
  return LB_OK;
}

static lb_status r_id(walk *w, uint32_t i) {
  return lb_error(LB_UNSUPPORTED,
                  "kernel %s: instruction %u is %s, which a CPU does not have: "
                  "make it a parameter",
                  w->k->name, i, lb_kop_infos[inst(w, i)->op].text);
}

// Its alloca is in the first block already.
static lb_status r_nothing(walk *w, uint32_t i) {
  (void)w, (void)i;
  return LB_OK;
}

// -- lanes -------------------------------------------------------------------

static lb_status r_lanes(walk *w, uint32_t i) {
  const lb_kinst *in = inst(w, i);
  lb_lv x[3];
  for (uint32_t n = 0; n < in->n_src; n++) x[n] = value(w, i, n);
  w->values[i] = lb_lanes(&w->e, (lb_kop)in->op, type_of(w, i, 0).dtype, x);
  return LB_OK;
}

static lb_status r_cast(walk *w, uint32_t i) {
  w->values[i] = lb_lanes_cast(&w->e, value(w, i, 0), type_of(w, i, 0).dtype,
                               inst(w, i)->dtype);
  return LB_OK;
}

static lb_status r_bitcast(walk *w, uint32_t i) {
  w->values[i] = lb_em_bitcast(&w->e, value(w, i, 0),
                               type_in_llvm(lb_ktype_of(inst(w, i))));
  return LB_OK;
}

static lb_status r_splat(walk *w, uint32_t i) {
  w->values[i] = lb_em_splat(&w->e, value(w, i, 0), inst(w, i)->lanes);
  return LB_OK;
}

static lb_status r_iota(walk *w, uint32_t i) {
  lb_lt t = type_in_llvm(lb_ktype_of(inst(w, i)));
  w->values[i] = t.lanes == 1 ? lb_em_bits(t, 0) : (lb_lv){t, LB_L_IOTA, 0};
  return LB_OK;
}

static lb_status r_extract(walk *w, uint32_t i) {
  uint32_t lane = (uint32_t)inst(w, i)->imm;
  w->values[i] = lb_em_extract(&w->e, value(w, i, 0), lane);
  return LB_OK;
}

static lb_status r_insert(walk *w, uint32_t i) {
  uint32_t lane = (uint32_t)inst(w, i)->imm;
  w->values[i] = lb_em_insert(&w->e, value(w, i, 0), value(w, i, 1), lane);
  return LB_OK;
}

static lb_status r_shuffle(walk *w, uint32_t i) {
  const lb_kinst *in = inst(w, i);
  lb_lv x = value(w, i, 0);
  lb_lv y = in->n_src > 1 ? value(w, i, 1) : lb_em_poison(x.type);
  w->values[i] =
      lb_em_shuffle(&w->e, x, y, lb_kernel_table(w->k, in), in->lanes);
  return LB_OK;
}

// The first n lanes as the bits of a number: no vector is kept for them.
static lb_lv mask_of_bits(walk *w, lb_lv n, uint32_t lanes) {
  lb_elem elem = lanes == 8 ? LB_E_I8 : LB_E_I16;
  lb_lv one = lb_em_bits(n.type, 1);
  n = lb_em_binary(&w->e, "shl", one, n);
  n = lb_em_binary(&w->e, "sub", n, one);
  n = lb_em_convert(&w->e, "trunc", n, elem);
  return lb_em_bitcast(&w->e, n, lt(LB_E_I1, lanes));
}

// The count is brought into a byte's range first, so that few bits of a lane
// are compared.
static lb_status r_tail(walk *w, uint32_t i) {
  uint32_t lanes = inst(w, i)->lanes;
  lb_lv n = value(w, i, 0);
  lb_lv most = lb_em_bits(n.type, lanes), zero = lb_em_bits(n.type, 0);
  n = lb_em_intrinsic(&w->e, "llvm.smin", (lb_lv[]){n, most}, 2);
  n = lb_em_intrinsic(&w->e, "llvm.smax", (lb_lv[]){n, zero}, 2);
  if (w->m.target.level >= LB_LEVEL_V4 && (lanes == 8 || lanes == 16)) {
    w->values[i] = mask_of_bits(w, n, lanes);
    return LB_OK;
  }
  lb_elem elem = lanes > 16 ? LB_E_I8 : LB_E_I32;
  n = lb_em_convert(&w->e, "trunc", n, elem);
  n = lb_em_splat(&w->e, n, lanes);
  lb_lv lane = {n.type, LB_L_IOTA, 0};
  if (lanes == 1) lane = lb_em_bits(n.type, 0);
  w->values[i] = lb_em_compare(&w->e, "icmp ult", lane, n);
  return LB_OK;
}

static lb_kop op_of_reduction(lb_kop op) {
  switch (op) {
    case LB_K_RADD: return LB_K_ADD;
    case LB_K_RMUL: return LB_K_MUL;
    case LB_K_RMIN: return LB_K_MIN;
    case LB_K_RMAX: return LB_K_MAX;
    case LB_K_RAND: return LB_K_AND;
    default: return LB_K_OR;
  }
}

static lb_status r_reduce(walk *w, uint32_t i) {
  uint8_t lanes[LB_K_MAX_LANES];
  lb_lv v = value(w, i, 0);
  for (uint8_t n = 0; n < LB_K_MAX_LANES; n++) lanes[n] = n;
  for (uint32_t half = v.type.lanes / 2u; half; half /= 2) {
    lb_lv none = lb_em_poison(v.type);
    lb_lv x[] = {lb_em_shuffle(&w->e, v, none, lanes, half),
                 lb_em_shuffle(&w->e, v, none, lanes + half, half)};
    v = lb_lanes(&w->e, op_of_reduction((lb_kop)inst(w, i)->op),
                 inst(w, i)->dtype, x);
  }
  w->values[i] = v;
  return LB_OK;
}

static lb_status r_dot4(walk *w, uint32_t i) {
  lb_lv x[] = {value(w, i, 0), value(w, i, 1), value(w, i, 2)};
  w->values[i] =
      lb_lanes_dot4(&w->e, x, type_of(w, i, 1).dtype, type_of(w, i, 2).dtype);
  return LB_OK;
}

// -- memory ------------------------------------------------------------------

static lb_lv optional(const walk *w, uint32_t i, uint32_t n) {
  return n < inst(w, i)->n_src ? value(w, i, n) : absent;
}

static lb_elem element(lb_ktype p) {
  return p.dtype == LB_BOOL ? LB_E_I8 : lb_elem_of(p.dtype);
}

static lb_status r_ptr(walk *w, uint32_t i) {
  int64_t disp = inst(w, i)->imm;
  lb_lv p = lb_em_gep(&w->e, element(type_of(w, i, 0)), value(w, i, 0),
                      value(w, i, 1));
  if (disp)
    p = lb_em_gep(&w->e, LB_E_I8, p,
                  lb_em_bits(lt(LB_E_I64, 1), (uint64_t)disp));
  w->values[i] = p;
  return LB_OK;
}

static lb_access access_of(const walk *w, uint32_t i, lb_ktype t) {
  const lb_kinst *in = inst(w, i);
  lb_ktype p = type_of(w, i, 0);
  return (lb_access){
      .pointer = value(w, i, 0),
      .mask = absent,
      .other = absent,
      .align = (uint32_t)(in->imm ? (size_t)in->imm : lb_dtype_size(p.dtype)),
      .dtype = p.dtype,
      .lanes = t.lanes,
      .fixed = (p.flags & LB_K_READONLY) != 0,
      .stream = (in->flags & LB_K_STREAM) != 0,
  };
}

static lb_status r_load(walk *w, uint32_t i) {
  lb_access a = access_of(w, i, lb_ktype_of(inst(w, i)));
  a.mask = optional(w, i, 1);
  a.other = optional(w, i, 2);
  w->values[i] = lb_access_load(&w->e, &a);
  return LB_OK;
}

static lb_status r_store(walk *w, uint32_t i) {
  lb_access a = access_of(w, i, type_of(w, i, 1));
  a.mask = optional(w, i, 2);
  w->fence |= a.stream;
  lb_access_store(&w->e, &a, value(w, i, 1));
  return LB_OK;
}

static lb_status r_gather(walk *w, uint32_t i) {
  lb_access a = access_of(w, i, lb_ktype_of(inst(w, i)));
  a.index = value(w, i, 1);
  a.mask = optional(w, i, 2);
  a.other = optional(w, i, 3);
  w->values[i] = lb_access_gather(&w->e, &a);
  return LB_OK;
}

static lb_status r_scatter(walk *w, uint32_t i) {
  lb_access a = access_of(w, i, type_of(w, i, 2));
  a.index = value(w, i, 1);
  a.mask = optional(w, i, 3);
  lb_access_scatter(&w->e, &a, value(w, i, 2));
  return LB_OK;
}

static lb_status r_prefetch(walk *w, uint32_t i) {
  lb_lt t = lt(LB_E_I32, 1);
  uint64_t keep = 3 - (uint64_t)inst(w, i)->imm;  // 3: in every cache
  lb_lv args[] = {value(w, i, 0), lb_em_bits(t, 0), lb_em_bits(t, keep),
                  lb_em_bits(t, 1)};
  lb_em_call(&w->e, "llvm.prefetch.p0", lt(LB_E_VOID, 1), args, 4);
  return LB_OK;
}

// -- registers and blocks ----------------------------------------------------

static lb_status r_same(walk *w, uint32_t i) {  // REG, GET
  w->values[i] = value(w, i, 0);
  return LB_OK;
}

static lb_status r_set(walk *w, uint32_t i) {
  w->values[src_of(w, i, 0)] = value(w, i, 1);
  return LB_OK;
}

static lb_status add_meeting(walk *w, block *b, uint32_t reg) {
  for (uint32_t n = 0; n < b->n; n++)
    if (w->meetings[b->first + n].reg == reg) return LB_OK;
  if (w->n_meetings == w->cap_meetings) {
    uint32_t cap = w->cap_meetings ? 2 * w->cap_meetings : 64;
    meeting *more = realloc(w->meetings, cap * sizeof *more);
    if (!more) return lb_oom();
    w->meetings = more;
    w->cap_meetings = cap;
  }
  w->meetings[w->n_meetings++] = (meeting){reg, w->values[reg], absent};
  b->n++;
  return LB_OK;
}

// Opens a block at i and finds the registers it sets.
static lb_status open_block(walk *w, uint32_t i, block **out) {
  block *b = &w->blocks[w->depth++];
  *b = (block){.inst = i, .first = w->n_meetings, .from = w->label};
  *out = b;
  uint32_t end = w->partner[i];
  if (inst(w, end)->op == LB_K_ELSE) end = w->partner[end];
  for (uint32_t n = i + 1; n < end; n++) {
    if (inst(w, n)->op != LB_K_SET || src_of(w, n, 0) > i) continue;
    LB_TRY(add_meeting(w, b, src_of(w, n, 0)));
  }
  b->body = ++w->n_labels;
  b->other = ++w->n_labels;
  b->exit = ++w->n_labels;
  return LB_OK;
}

static void enter(walk *w, uint32_t label) {
  lb_em_label(&w->e, label);
  w->label = label;
}

static lb_lv less(walk *w, lb_lv x, lb_lv y) {
  return lb_em_compare(&w->e, "icmp slt", x, y);
}

static lb_status r_loop(walk *w, uint32_t i) {
  block *b;
  LB_TRY(open_block(w, i, &b));
  lb_lv begin = value(w, i, 0);
  lb_em_branch(&w->e, less(w, begin, value(w, i, 1)), b->body, b->exit);
  // The block that turns back is named ahead as well.
  enter(w, b->body);
  b->next = lb_em_new(&w->e, begin.type);
  w->values[i] = lb_em_new(&w->e, begin.type);
  lb_em_phi(&w->e, w->values[i], begin, b->from, b->next, b->other);
  for (uint32_t n = 0; n < b->n; n++) {
    meeting *m = &w->meetings[b->first + n];
    m->other = lb_em_new(&w->e, m->before.type);
    w->values[m->reg] = lb_em_new(&w->e, m->before.type);
    lb_em_phi(&w->e, w->values[m->reg], m->before, b->from, m->other, b->other);
  }
  return LB_OK;
}

static void end_loop(walk *w, block *b) {
  lb_em_jump(&w->e, b->other);
  enter(w, b->other);
  lb_lv next =
      lb_em_binary(&w->e, "add nsw", w->values[b->inst], value(w, b->inst, 2));
  lb_em_define(&w->e, b->next, next);
  for (uint32_t n = 0; n < b->n; n++) {
    meeting *m = &w->meetings[b->first + n];
    lb_em_define(&w->e, m->other, w->values[m->reg]);
  }
  lb_em_branch(&w->e, less(w, b->next, value(w, b->inst, 1)), b->body, b->exit);
  enter(w, b->exit);
  for (uint32_t n = 0; n < b->n; n++) {
    meeting *m = &w->meetings[b->first + n];
    lb_lv v = lb_em_new(&w->e, m->before.type);
    lb_em_phi(&w->e, v, m->before, b->from, m->other, b->other);
    w->values[m->reg] = v;
  }
}

static bool has_else(const walk *w, const block *b) {
  return inst(w, w->partner[b->inst])->op == LB_K_ELSE;
}

static lb_status r_if(walk *w, uint32_t i) {
  block *b;
  LB_TRY(open_block(w, i, &b));
  lb_em_branch(&w->e, value(w, i, 0), b->body,
               has_else(w, b) ? b->other : b->exit);
  enter(w, b->body);
  return LB_OK;
}

static lb_status r_else(walk *w, uint32_t i) {
  (void)i;
  block *b = &w->blocks[w->depth - 1];
  b->first_end = w->label;
  for (uint32_t n = 0; n < b->n; n++) {
    meeting *m = &w->meetings[b->first + n];
    m->other = w->values[m->reg];
    w->values[m->reg] = m->before;
  }
  lb_em_jump(&w->e, b->exit);
  enter(w, b->other);
  return LB_OK;
}

static void end_if(walk *w, block *b) {
  bool both = has_else(w, b);
  uint32_t last = w->label;
  lb_em_jump(&w->e, b->exit);
  enter(w, b->exit);
  for (uint32_t n = 0; n < b->n; n++) {
    meeting *m = &w->meetings[b->first + n];
    lb_lv v = lb_em_new(&w->e, m->before.type);
    lb_em_phi(&w->e, v, both ? m->other : m->before,
              both ? b->first_end : b->from, w->values[m->reg], last);
    w->values[m->reg] = v;
  }
}

static lb_status r_end(walk *w, uint32_t i) {
  (void)i;
  block *b = &w->blocks[--w->depth];
  if (inst(w, b->inst)->op == LB_K_LOOP)
    end_loop(w, b);
  else
    end_if(w, b);
  w->n_meetings = b->first;
  return LB_OK;
}

// -- the walk ----------------------------------------------------------------

// One a typing rule; a row of kops.def with a rule that has none does not
// compile.
#define R_CONST r_const
#define R_PARAM r_param
#define R_ID r_id
#define R_SAME r_lanes
#define R_COMPARE r_lanes
#define R_SELECT r_lanes
#define R_CAST r_cast
#define R_BITCAST r_bitcast
#define R_SPLAT r_splat
#define R_IOTA r_iota
#define R_EXTRACT r_extract
#define R_INSERT r_insert
#define R_SHUFFLE r_shuffle
#define R_TAIL r_tail
#define R_REDUCE r_reduce
#define R_DOT4 r_dot4
#define R_PTR r_ptr
#define R_LOCAL r_nothing
#define R_LOAD r_load
#define R_GATHER r_gather
#define R_STORE r_store
#define R_SCATTER r_scatter
#define R_PREFETCH r_prefetch
#define R_NOTHING r_nothing
#define R_REG r_same
#define R_GET r_same
#define R_SET r_set
#define R_LOOP r_loop
#define R_IF r_if

static render_fn *const by_op[LB_K_COUNT] = {
#define LB_KOP(ID, text, min, max, cls, rule, ...) [LB_K_##ID] = R_##rule,
#include "kir/kops.def"
};

static render_fn *fn_of(lb_kop op) {
  if (op == LB_K_ELSE) return r_else;
  return op == LB_K_END ? r_end : by_op[op];
}

static void local_memory(walk *w) {
  for (uint32_t i = 0; i < w->k->n_insts; i++) {
    const lb_kinst *in = inst(w, i);
    if (in->op != LB_K_LOCAL) continue;
    lb_lv v = lb_em_new(&w->e, lt(LB_E_PTR, 1));
    lb_strbuf_puts(&w->e.out, "  ");
    lb_em_value(&w->e.out, v);
    lb_strbuf_puts(&w->e.out, " = alloca [");
    lb_strbuf_printf(&w->e.out, "%lld x ", (long long)in->imm);
    lb_em_type(&w->e.out, lt(element(lb_ktype_of(in)), 1));
    lb_strbuf_puts(&w->e.out, "], align 64\n");
    w->values[i] = v;
  }
}

static lb_status write_body(walk *w) {
  lb_em_new(&w->e, lt(LB_E_PTR, 1));  // %t0, the arguments
  enter(w, 0);
  local_memory(w);
  for (uint32_t i = 0; i < w->k->n_insts; i++)
    LB_TRY(fn_of((lb_kop)inst(w, i)->op)(w, i));
  if (w->fence)
    lb_em_call(&w->e, "llvm.x86.sse.sfence", lt(LB_E_VOID, 1), NULL, 0);
  lb_strbuf_puts(&w->e.out, "  ret void\n");
  LB_TRY(lb_strbuf_status(&w->e.out));
  LB_TRY(lb_strbuf_status(&w->m.decls));
  return lb_strbuf_status(&w->m.funcs);
}

static void write_module(const walk *w, lb_strbuf *out) {
  lb_strbuf_puts(out, lb_strbuf_str(&w->m.decls));
  lb_strbuf_puts(out, lb_strbuf_str(&w->m.funcs));
  lb_strbuf_printf(out,
                   "define void @%s(ptr noalias nocapture readonly %%t0) "
                   "nounwind \"prefer-vector-width\"=\"%u\" {\n",
                   w->k->name, w->m.target.level >= LB_LEVEL_V4 ? 512 : 256);
  lb_strbuf_puts(out, lb_strbuf_str(&w->e.out));
  lb_strbuf_puts(out, "}\n");
  lb_strbuf_puts(out, lb_em_metadata);
}

static lb_status walk_init(walk *w, const lb_kernel *k, const lb_target *t) {
  size_t n = k->n_insts ? k->n_insts : 1;
  *w = (walk){.k = k, .m.target = *t};
  w->e.m = &w->m;
  w->values = calloc(n, sizeof *w->values);
  w->partner = calloc(n, sizeof *w->partner);
  if (!w->values || !w->partner) return lb_oom();
  lb_kernel_partners(k, w->partner);
  return LB_OK;
}

static void walk_fini(walk *w) {
  lb_strbuf_fini(&w->e.out);
  lb_strbuf_fini(&w->m.decls);
  lb_strbuf_fini(&w->m.funcs);
  free(w->values);
  free(w->partner);
  free(w->meetings);
}

lb_status lb_render_llvm(const lb_kernel *k, const lb_target *t,
                         lb_strbuf *out) {
  walk w;
  LB_TRY(lb_target_check(t));
  lb_status st = walk_init(&w, k, t);
  if (lb_failed(st)) goto done;
  if (k->local[0] != 1 || k->local[1] != 1 || k->local[2] != 1) {
    st = lb_error(LB_UNSUPPORTED,
                  "kernel %s has groups of %u x %u x %u items; on a CPU a "
                  "group is one",
                  k->name, k->local[0], k->local[1], k->local[2]);
    goto done;
  }
  st = write_body(&w);
  if (lb_failed(st)) goto done;
  write_module(&w, out);
  st = lb_strbuf_status(out);

done:
  walk_fini(&w);
  return st;
}
