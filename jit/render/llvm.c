// render/llvm.c -- Renders a kernel as LLVM IR.
//
// The value of a register is what SET assigned last: it needs neither memory
// nor an instruction. Where control flow merges it becomes a phi: for each
// register that a block sets and that is older than the block, one at the start
// of a LOOP and one at the END of a LOOP or IF.
//
// (1) values[i] is the result of instruction i; of a REG, its current value.
// (2) A LOOP is written with its test at the end, and once more before it. Its
//     phis use the values of the next iteration before END defines them.
#include "render/render.h"

#include <assert.h>
#include <stdlib.h>

#include "render/access.h"
#include "render/lanes.h"

typedef struct merge {  // a register that a block sets
  uint32_t reg;
  lb_lv before;
  lb_lv other;  // value. LOOP: of the next iteration, defined at END; IF: of
                // its first block
} merge;

typedef struct llvm_block {
  uint32_t inst;      // LOOP or IF
  uint32_t first, n;  // its merges
  uint32_t from;      // label of the block before it
  // labels; other: of ELSE, or of the loop's back edge
  uint32_t body, other, exit;
  uint32_t first_end;  // IF: label at the end of the first block
  lb_lv next;          // LOOP: the next value of the counter
} llvm_block;

typedef struct renderer {
  const lb_kernel *k;  // borrowed
  lb_module m;
  lb_em e;
  lb_lv *values;      // owned, as are partner and merges
  uint32_t *partner;  // see kir.h
  merge *merges;
  uint32_t n_merges, cap_merges;
  llvm_block blocks[LB_K_MAX_DEPTH];
  uint32_t depth;
  uint32_t label, n_labels;  // the current label; number of labels
  bool fence;                // there was a non-temporal store
} renderer;

typedef lb_status render_fn(renderer *w, uint32_t i);

static const lb_kinst *inst(const renderer *w, uint32_t i) {
  return &w->k->insts[i];
}

static uint32_t src_of(const renderer *w, uint32_t i, uint32_t n) {
  return lb_kernel_srcs(w->k, inst(w, i))[n];
}

static lb_lv value(const renderer *w, uint32_t i, uint32_t n) {
  return w->values[src_of(w, i, n)];
}

static lb_ktype type_of(const renderer *w, uint32_t i, uint32_t n) {
  return lb_ktype_of(inst(w, src_of(w, i, n)));
}

static lb_lt type_in_llvm(lb_ktype t) {
  return lt(lb_ktype_is_ptr(t) ? LB_E_PTR : lb_elem_of(t.dtype), t.lanes);
}

static const lb_lv absent = {.kind = LB_L_POISON};

// -- leaves ------------------------------------------------------------------

static lb_status r_const(renderer *w, uint32_t i) {
  const lb_kinst *in = inst(w, i);
  lb_lt t = type_in_llvm(lb_ktype_of(in));
  w->values[i] = lb_em_bits(t, (uint64_t)in->imm);
  return LB_OK;
}

static lb_status r_param(renderer *w, uint32_t i) {
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

static lb_status r_id(renderer *w, uint32_t i) {
  return lb_error(LB_UNSUPPORTED,
                  "kernel %s: instruction %u is %s, which a CPU does not have: "
                  "make it a parameter",
                  w->k->name, i, lb_kop_infos[inst(w, i)->op].text);
}

// LOCAL: its alloca is in the first block already.
static lb_status r_nothing(renderer *w, uint32_t i) {
  (void)w, (void)i;
  return LB_OK;
}

// -- lanes -------------------------------------------------------------------

static lb_status r_lanes(renderer *w, uint32_t i) {
  const lb_kinst *in = inst(w, i);
  lb_lv x[3];
  for (uint32_t n = 0; n < in->n_src; n++) x[n] = value(w, i, n);
  w->values[i] = lb_lanes(&w->e, (lb_kop)in->op, type_of(w, i, 0).dtype, x);
  return LB_OK;
}

static lb_status r_cast(renderer *w, uint32_t i) {
  w->values[i] = lb_lanes_cast(&w->e, value(w, i, 0), type_of(w, i, 0).dtype,
                               inst(w, i)->dtype);
  return LB_OK;
}

static lb_status r_bitcast(renderer *w, uint32_t i) {
  w->values[i] = lb_em_bitcast(&w->e, value(w, i, 0),
                               type_in_llvm(lb_ktype_of(inst(w, i))));
  return LB_OK;
}

static lb_status r_splat(renderer *w, uint32_t i) {
  w->values[i] = lb_em_splat(&w->e, value(w, i, 0), inst(w, i)->lanes);
  return LB_OK;
}

static lb_status r_iota(renderer *w, uint32_t i) {
  lb_lt t = type_in_llvm(lb_ktype_of(inst(w, i)));
  w->values[i] = t.lanes == 1 ? lb_em_bits(t, 0) : (lb_lv){t, LB_L_IOTA, 0};
  return LB_OK;
}

static lb_status r_extract(renderer *w, uint32_t i) {
  uint32_t lane = (uint32_t)inst(w, i)->imm;
  w->values[i] = lb_em_extract(&w->e, value(w, i, 0), lane);
  return LB_OK;
}

static lb_status r_insert(renderer *w, uint32_t i) {
  uint32_t lane = (uint32_t)inst(w, i)->imm;
  w->values[i] = lb_em_insert(&w->e, value(w, i, 0), value(w, i, 1), lane);
  return LB_OK;
}

static lb_status r_shuffle(renderer *w, uint32_t i) {
  const lb_kinst *in = inst(w, i);
  lb_lv x = value(w, i, 0);
  lb_lv y = in->n_src > 1 ? value(w, i, 1) : lb_em_poison(x.type);
  w->values[i] =
      lb_em_shuffle(&w->e, x, y, lb_kernel_table(w->k, in), in->lanes);
  return LB_OK;
}

// The first n lanes as integer bits, for mask registers: no vector is needed.
static lb_lv mask_of_bits(renderer *w, lb_lv n, uint32_t lanes) {
  lb_elem elem = lanes == 8 ? LB_E_I8 : LB_E_I16;
  lb_lv one = lb_em_bits(n.type, 1);
  n = lb_em_binary(&w->e, "shl", one, n);
  n = lb_em_binary(&w->e, "sub", n, one);
  n = lb_em_convert(&w->e, "trunc", n, elem);
  return lb_em_bitcast(&w->e, n, lt(LB_E_I1, lanes));
}

// The count is clamped to the number of lanes first, so that narrow elements
// can be compared.
static lb_status r_tail(renderer *w, uint32_t i) {
  uint32_t lanes = inst(w, i)->lanes;
  lb_lv n = value(w, i, 0);
  lb_lv max_count = lb_em_bits(n.type, lanes), zero = lb_em_bits(n.type, 0);
  n = lb_em_intrinsic(&w->e, "llvm.smin", (lb_lv[]){n, max_count}, 2);
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

static lb_status r_reduce(renderer *w, uint32_t i) {
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

static lb_status r_dot4(renderer *w, uint32_t i) {
  lb_lv x[] = {value(w, i, 0), value(w, i, 1), value(w, i, 2)};
  w->values[i] =
      lb_lanes_dot4(&w->e, x, type_of(w, i, 1).dtype, type_of(w, i, 2).dtype);
  return LB_OK;
}

// -- memory ------------------------------------------------------------------

static lb_lv optional(const renderer *w, uint32_t i, uint32_t n) {
  return n < inst(w, i)->n_src ? value(w, i, n) : absent;
}

static lb_elem element(lb_ktype p) {
  return p.dtype == LB_BOOL ? LB_E_I8 : lb_elem_of(p.dtype);
}

static lb_status r_ptr(renderer *w, uint32_t i) {
  int64_t disp = inst(w, i)->imm;
  lb_lv p = lb_em_gep(&w->e, element(type_of(w, i, 0)), value(w, i, 0),
                      value(w, i, 1));
  if (disp)
    p = lb_em_gep(&w->e, LB_E_I8, p,
                  lb_em_bits(lt(LB_E_I64, 1), (uint64_t)disp));
  w->values[i] = p;
  return LB_OK;
}

static lb_access access_of(const renderer *w, uint32_t i, lb_ktype t) {
  const lb_kinst *in = inst(w, i);
  lb_ktype p = type_of(w, i, 0);
  return (lb_access){
      .pointer = value(w, i, 0),
      .mask = absent,
      .other = absent,
      .align = (uint32_t)(in->imm ? (size_t)in->imm : lb_dtype_size(p.dtype)),
      .dtype = p.dtype,
      .lanes = t.lanes,
      .invariant = (p.flags & LB_K_READONLY) != 0,
      .stream = (in->flags & LB_K_STREAM) != 0,
  };
}

static lb_status r_load(renderer *w, uint32_t i) {
  lb_access a = access_of(w, i, lb_ktype_of(inst(w, i)));
  a.mask = optional(w, i, 1);
  a.other = optional(w, i, 2);
  w->values[i] = lb_access_load(&w->e, &a);
  return LB_OK;
}

static lb_status r_store(renderer *w, uint32_t i) {
  lb_access a = access_of(w, i, type_of(w, i, 1));
  a.mask = optional(w, i, 2);
  w->fence |= a.stream;
  lb_access_store(&w->e, &a, value(w, i, 1));
  return LB_OK;
}

static lb_status r_gather(renderer *w, uint32_t i) {
  lb_access a = access_of(w, i, lb_ktype_of(inst(w, i)));
  a.index = value(w, i, 1);
  a.mask = optional(w, i, 2);
  a.other = optional(w, i, 3);
  w->values[i] = lb_access_gather(&w->e, &a);
  return LB_OK;
}

static lb_status r_scatter(renderer *w, uint32_t i) {
  lb_access a = access_of(w, i, type_of(w, i, 2));
  a.index = value(w, i, 1);
  a.mask = optional(w, i, 3);
  lb_access_scatter(&w->e, &a, value(w, i, 2));
  return LB_OK;
}

static lb_status r_prefetch(renderer *w, uint32_t i) {
  lb_lt t = lt(LB_E_I32, 1);
  uint64_t locality =
      3 - (uint64_t)inst(w, i)->imm;  // 3: into all cache levels
  lb_lv args[] = {value(w, i, 0), lb_em_bits(t, 0), lb_em_bits(t, locality),
                  lb_em_bits(t, 1)};
  lb_em_call(&w->e, "llvm.prefetch.p0", lt(LB_E_VOID, 1), args, 4);
  return LB_OK;
}

// -- registers and blocks ----------------------------------------------------

static lb_status r_same(renderer *w, uint32_t i) {  // REG, GET
  w->values[i] = value(w, i, 0);
  return LB_OK;
}

static lb_status r_set(renderer *w, uint32_t i) {
  w->values[src_of(w, i, 0)] = value(w, i, 1);
  return LB_OK;
}

static lb_status add_merge(renderer *w, llvm_block *b, uint32_t reg) {
  for (uint32_t n = 0; n < b->n; n++)
    if (w->merges[b->first + n].reg == reg) return LB_OK;
  if (w->n_merges == w->cap_merges) {
    uint32_t cap = w->cap_merges ? 2 * w->cap_merges : 64;
    merge *more = realloc(w->merges, cap * sizeof *more);
    if (!more) return lb_oom();
    w->merges = more;
    w->cap_merges = cap;
  }
  w->merges[w->n_merges++] = (merge){reg, w->values[reg], absent};
  b->n++;
  return LB_OK;
}

// Opens a block at i and finds the registers that it sets.
static lb_status open_block(renderer *w, uint32_t i, llvm_block **out) {
  llvm_block *b = &w->blocks[w->depth++];
  *b = (llvm_block){.inst = i, .first = w->n_merges, .from = w->label};
  *out = b;
  uint32_t end = w->partner[i];
  if (inst(w, end)->op == LB_K_ELSE) end = w->partner[end];
  for (uint32_t n = i + 1; n < end; n++) {
    if (inst(w, n)->op != LB_K_SET || src_of(w, n, 0) > i) continue;
    LB_TRY(add_merge(w, b, src_of(w, n, 0)));
  }
  b->body = ++w->n_labels;
  b->other = ++w->n_labels;
  b->exit = ++w->n_labels;
  return LB_OK;
}

static void enter(renderer *w, uint32_t label) {
  lb_em_label(&w->e, label);
  w->label = label;
}

static lb_lv less(renderer *w, lb_lv x, lb_lv y) {
  return lb_em_compare(&w->e, "icmp slt", x, y);
}

static lb_status r_loop(renderer *w, uint32_t i) {
  llvm_block *b;
  LB_TRY(open_block(w, i, &b));
  lb_lv begin = value(w, i, 0);
  lb_em_branch(&w->e, less(w, begin, value(w, i, 1)), b->body, b->exit);
  // The label of the block with the back edge is used before it exists, too.
  enter(w, b->body);
  b->next = lb_em_new(&w->e, begin.type);
  w->values[i] = lb_em_new(&w->e, begin.type);
  lb_em_phi(&w->e, w->values[i], begin, b->from, b->next, b->other);
  for (uint32_t n = 0; n < b->n; n++) {
    merge *m = &w->merges[b->first + n];
    m->other = lb_em_new(&w->e, m->before.type);
    w->values[m->reg] = lb_em_new(&w->e, m->before.type);
    lb_em_phi(&w->e, w->values[m->reg], m->before, b->from, m->other, b->other);
  }
  return LB_OK;
}

static void end_loop(renderer *w, llvm_block *b) {
  lb_em_jump(&w->e, b->other);
  enter(w, b->other);
  lb_lv next =
      lb_em_binary(&w->e, "add nsw", w->values[b->inst], value(w, b->inst, 2));
  lb_em_define(&w->e, b->next, next);
  for (uint32_t n = 0; n < b->n; n++) {
    merge *m = &w->merges[b->first + n];
    lb_em_define(&w->e, m->other, w->values[m->reg]);
  }
  lb_em_branch(&w->e, less(w, b->next, value(w, b->inst, 1)), b->body, b->exit);
  enter(w, b->exit);
  for (uint32_t n = 0; n < b->n; n++) {
    merge *m = &w->merges[b->first + n];
    lb_lv v = lb_em_new(&w->e, m->before.type);
    lb_em_phi(&w->e, v, m->before, b->from, m->other, b->other);
    w->values[m->reg] = v;
  }
}

static bool has_else(const renderer *w, const llvm_block *b) {
  return inst(w, w->partner[b->inst])->op == LB_K_ELSE;
}

static lb_status r_if(renderer *w, uint32_t i) {
  llvm_block *b;
  LB_TRY(open_block(w, i, &b));
  lb_em_branch(&w->e, value(w, i, 0), b->body,
               has_else(w, b) ? b->other : b->exit);
  enter(w, b->body);
  return LB_OK;
}

static lb_status r_else(renderer *w, uint32_t i) {
  (void)i;
  llvm_block *b = &w->blocks[w->depth - 1];
  b->first_end = w->label;
  for (uint32_t n = 0; n < b->n; n++) {
    merge *m = &w->merges[b->first + n];
    m->other = w->values[m->reg];
    w->values[m->reg] = m->before;
  }
  lb_em_jump(&w->e, b->exit);
  enter(w, b->other);
  return LB_OK;
}

static void end_if(renderer *w, llvm_block *b) {
  bool both = has_else(w, b);
  uint32_t last = w->label;
  lb_em_jump(&w->e, b->exit);
  enter(w, b->exit);
  for (uint32_t n = 0; n < b->n; n++) {
    merge *m = &w->merges[b->first + n];
    lb_lv v = lb_em_new(&w->e, m->before.type);
    lb_em_phi(&w->e, v, both ? m->other : m->before,
              both ? b->first_end : b->from, w->values[m->reg], last);
    w->values[m->reg] = v;
  }
}

static lb_status r_end(renderer *w, uint32_t i) {
  (void)i;
  llvm_block *b = &w->blocks[--w->depth];
  if (inst(w, b->inst)->op == LB_K_LOOP)
    end_loop(w, b);
  else
    end_if(w, b);
  w->n_merges = b->first;
  return LB_OK;
}

// -- rendering ---------------------------------------------------------------

// One function per typing rule; a row of kops.def with a rule that has none
// does not compile.
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

static void local_memory(renderer *w) {
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

static lb_status write_body(renderer *w) {
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

static void write_module(const renderer *w, lb_strbuf *out) {
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

static lb_status renderer_init(renderer *w, const lb_kernel *k,
                               const lb_target *t) {
  size_t n = k->n_insts ? k->n_insts : 1;
  *w = (renderer){.k = k, .m.target = *t};
  w->e.m = &w->m;
  w->values = calloc(n, sizeof *w->values);
  w->partner = calloc(n, sizeof *w->partner);
  if (!w->values || !w->partner) return lb_oom();
  lb_kernel_partners(k, w->partner);
  return LB_OK;
}

static void renderer_fini(renderer *w) {
  lb_strbuf_fini(&w->e.out);
  lb_strbuf_fini(&w->m.decls);
  lb_strbuf_fini(&w->m.funcs);
  free(w->values);
  free(w->partner);
  free(w->merges);
}

lb_status lb_render_llvm(const lb_kernel *k, const lb_target *t,
                         lb_strbuf *out) {
  renderer w;
  LB_TRY(lb_target_check(t));
  lb_status st = renderer_init(&w, k, t);
  if (lb_failed(st)) goto done;
  if (k->local[0] != 1 || k->local[1] != 1 || k->local[2] != 1) {
    st = lb_error(LB_UNSUPPORTED,
                  "kernel %s has groups of %u x %u x %u items; on a CPU a "
                  "group must be one item",
                  k->name, k->local[0], k->local[1], k->local[2]);
    goto done;
  }
  st = write_body(&w);
  if (lb_failed(st)) goto done;
  write_module(&w, out);
  st = lb_strbuf_status(out);

done:
  renderer_fini(&w);
  return st;
}
