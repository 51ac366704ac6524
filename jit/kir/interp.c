// kir/interp.c -- Decodes a kernel into steps and runs them over groups.
//
// Every value has an offset in a frame; there is one frame per work item.
// CONST, PARAM, LOCAL and ids are written before the first step, so they need
// no steps. Work items of a group run one after the other, each to the next
// BARRIER or to the end, so that kernels with barriers run exactly.
//
// Memory i < n_params belongs to parameter i; the others are the LOCALs.
#include "kir/interp.h"

#include <stdlib.h>
#include <string.h>

#include "kir/memory.h"
#include "kir/num.h"

enum {
  STEP_LANES,
  STEP_ACCESS,
  STEP_PTR,
  STEP_LOOP,
  STEP_NEXT,
  STEP_IF,
  STEP_JUMP,
  STEP_BARRIER,
  STEP_DONE
};

typedef struct item {  // a work item
  char *frame;         // borrowed
  uint32_t pc;         // index of the next step
} item;

struct lb_kinterp {
  const lb_kernel *k;  // borrowed
  uint32_t n_params, n_steps, n_items, n_memories;
  uint32_t *frame_offset;  // owned; per value
  size_t frame_size;
  lb_kstep *steps;           // owned
  lb_kaccess_fn **accesses;  // owned; by step
  lb_kmemory *memories;      // owned
  char *local;               // owned; all LOCALs
  size_t local_size;
  char *frames;     // owned
  item *items;      // owned
  uint64_t budget;  // what remains
};

lb_karg lb_karg_num(lb_dtype t, double x) {
  return (lb_karg){.bits = lb_knum_bits(t, x)};
}

void lb_kinterp_free(lb_kinterp *m) {
  if (!m) return;
  free(m->frame_offset);
  free(m->steps);
  free(m->accesses);
  free(m->memories);
  free(m->local);
  free(m->frames);
  free(m->items);
  free(m);
}

// -- decoding ----------------------------------------------------------------

static size_t round_up(size_t n) {
  return (n + LB_KFRAME_ALIGN - 1) / LB_KFRAME_ALIGN * LB_KFRAME_ALIGN;
}

static size_t local_bytes(const lb_kinst *in) {
  return round_up((size_t)in->imm * lb_dtype_size(in->dtype));
}

static void assign_offsets(lb_kinterp *m) {
  m->n_memories = m->n_params;
  for (uint32_t i = 0; i < m->k->n_insts; i++) {
    const lb_kinst *in = &m->k->insts[i];
    m->frame_offset[i] = (uint32_t)m->frame_size;
    m->frame_size += round_up(lb_kvalue_size(lb_ktype_of(in)));
    if (in->op == LB_K_LOCAL) {
      m->local_size += local_bytes(in);
      m->n_memories++;
    }
  }
}

static bool is_preset(uint8_t op) {
  return op == LB_K_CONST || op == LB_K_PARAM || op == LB_K_LOCAL ||
         op == LB_K_GROUP_ID || op == LB_K_LOCAL_ID;
}

static lb_kaccess_fn *access_of(uint8_t op) {
  switch (op) {
    case LB_K_LOAD: return lb_kaccess_load;
    case LB_K_STORE: return lb_kaccess_store;
    case LB_K_GATHER: return lb_kaccess_gather;
    case LB_K_SCATTER: return lb_kaccess_scatter;
    default: return NULL;
  }
}

// Sets what the access functions expect: bytes of an element in memory and of
// an index, and the number of lanes.
static void decode_access(const lb_kinterp *m, const lb_kinst *in,
                          lb_kstep *s) {
  s->kind = STEP_ACCESS;
  s->size = (uint8_t)lb_dtype_size(s->from);
  if (in->op == LB_K_STORE) s->lanes = lb_kernel_src(m->k, in, 1)->lanes;
  if (in->op == LB_K_SCATTER) s->lanes = lb_kernel_src(m->k, in, 2)->lanes;
  if (in->op == LB_K_GATHER || in->op == LB_K_SCATTER)
    s->from_lanes = (uint16_t)lb_dtype_size(lb_kernel_src(m->k, in, 1)->dtype);
}

// A SET copies its value to its register, like a GET in the other direction.
static void decode_set(const lb_kinterp *m, const lb_kinst *in, lb_kstep *s) {
  lb_kinst get = *lb_kernel_src(m->k, in, 0);
  lb_ktype t = lb_ktype_of(&get);
  uint32_t inst = s->inst, value = s->src[1], frame_offset = s->src[0];
  get.op = LB_K_GET;
  lb_kstep_decode(&get, &t, NULL, s);
  s->inst = inst, s->dst = frame_offset, s->src[0] = value;
}

static uint8_t kind_of(const lb_kinterp *m, const lb_kinst *in,
                       uint32_t partner) {
  switch (in->op) {
    case LB_K_PTR: return STEP_PTR;
    case LB_K_LOOP: return STEP_LOOP;
    case LB_K_IF: return STEP_IF;
    case LB_K_ELSE: return STEP_JUMP;
    case LB_K_BARRIER: return STEP_BARRIER;
    case LB_K_END:
      return m->k->insts[partner].op == LB_K_LOOP ? STEP_NEXT : STEP_LANES;
    default: return STEP_LANES;
  }
}

static void decode(lb_kinterp *m, uint32_t i, uint32_t partner) {
  const lb_kinst *in = &m->k->insts[i];
  lb_kstep *s = &m->steps[m->n_steps];
  lb_ktype types[4];
  for (uint32_t n = 0; n < in->n_src; n++)
    types[n] = lb_ktype_of(lb_kernel_src(m->k, in, n));
  bool shuffles = in->op == LB_K_SHUFFLE;
  lb_kstep_decode(in, types, shuffles ? lb_kernel_table(m->k, in) : NULL, s);
  s->inst = i, s->dst = m->frame_offset[i];
  s->kind = kind_of(m, in, partner);
  s->jump = partner;  // an instruction index until all are decoded
  for (uint32_t n = 0; n < 4; n++)
    s->src[n] =
        n < in->n_src ? m->frame_offset[m->k->pool[in->src + n]] : LB_K_NONE;
  if (in->op == LB_K_SET) decode_set(m, in, s);
  m->accesses[m->n_steps] = access_of(in->op);
  if (access_of(in->op)) decode_access(m, in, s);
  if (s->kind == STEP_LANES && !s->fn) return;  // END of IF, PREFETCH
  m->n_steps++;
}

// A jump leads to the step after its partner; an END jumps back to its LOOP.
static void decode_all(lb_kinterp *m, const uint32_t *partners,
                       uint32_t *step_of) {
  for (uint32_t i = 0; i < m->k->n_insts; i++) {
    step_of[i] = m->n_steps;
    if (!is_preset(m->k->insts[i].op)) decode(m, i, partners[i]);
  }
  m->steps[m->n_steps] = (lb_kstep){.kind = STEP_DONE, .inst = LB_K_NONE};
  step_of[m->k->n_insts] = m->n_steps++;
  for (uint32_t n = 0; n < m->n_steps; n++) {
    lb_kstep *s = &m->steps[n];
    if (s->kind == STEP_NEXT)
      s->jump = step_of[s->jump];
    else if (s->kind >= STEP_LOOP && s->kind <= STEP_JUMP)
      s->jump = step_of[s->jump + 1];
  }
}

static lb_status alloc_state(lb_kinterp *m) {
  size_t bytes;
  m->n_items = m->k->local[0] * m->k->local[1] * m->k->local[2];
  if (m->frame_size > UINT32_MAX ||
      __builtin_mul_overflow(round_up(m->frame_size + 1), m->n_items, &bytes))
    return lb_error(LB_UNSUPPORTED, "kernel %s: frames are too large",
                    m->k->name);
  m->frame_size = round_up(m->frame_size + 1);
  m->frames = aligned_alloc(LB_KFRAME_ALIGN, bytes);
  m->local = aligned_alloc(LB_KFRAME_ALIGN, m->local_size + LB_KFRAME_ALIGN);
  m->items = calloc(m->n_items, sizeof *m->items);
  m->memories = calloc(m->n_memories + 1u, sizeof *m->memories);
  if (!m->frames || !m->local || !m->items || !m->memories) return lb_oom();
  for (uint32_t i = 0; i < m->n_items; i++)
    m->items[i].frame = m->frames + i * m->frame_size;
  return LB_OK;
}

static lb_status prepare(lb_kinterp *m) {
  size_t n = m->k->n_insts + 1u;
  uint32_t *scratch = calloc(2 * n, sizeof *scratch);
  m->frame_offset = calloc(n, sizeof *m->frame_offset);
  m->steps = calloc(n, sizeof *m->steps);
  m->accesses = calloc(n, sizeof *m->accesses);
  lb_status st = LB_OK;
  if (!scratch || !m->frame_offset || !m->steps || !m->accesses) {
    st = lb_oom();
  } else {
    m->n_params = lb_kernel_params(m->k);
    lb_kernel_partners(m->k, scratch);
    assign_offsets(m);
    st = alloc_state(m);
    if (!lb_failed(st)) decode_all(m, scratch, scratch + n);
  }
  free(scratch);
  return st;
}

lb_status lb_kinterp_new(const lb_kernel *k, lb_kinterp **out) {
  *out = NULL;
  LB_TRY(lb_kernel_verify(k));
  lb_kinterp *m = calloc(1, sizeof *m);
  if (!m) return lb_oom();
  m->k = k;
  lb_status st = prepare(m);
  if (lb_failed(st))
    lb_kinterp_free(m);
  else
    *out = m;
  return st;
}

// -- steps -------------------------------------------------------------------

static lb_status fault(const lb_kinterp *m, uint32_t inst, const char *what) {
  lb_strbuf text = {0};
  lb_kernel_print_inst(m->k, inst, &text);
  lb_status st = lb_error(LB_INVALID, "kernel %s: instruction %u '%s' %s",
                          m->k->name, inst, lb_strbuf_str(&text), what);
  lb_strbuf_fini(&text);
  return st;
}

static int64_t get_i64(const char *frame, uint32_t frame_offset) {
  int64_t x;
  memcpy(&x, frame + frame_offset, sizeof x);
  return x;
}

static void put_i64(char *frame, uint32_t frame_offset, int64_t x) {
  memcpy(frame + frame_offset, &x, sizeof x);
}

static void move_ptr(const lb_kstep *s, char *frame) {
  lb_kptr p;
  memcpy(&p, frame + s->src[0], sizeof p);
  uint64_t index = (uint64_t)get_i64(frame, s->src[1]);
  uint64_t size = lb_dtype_size(s->dtype);
  p.offset = (int64_t)((uint64_t)p.offset + index * size + (uint64_t)s->imm);
  memcpy(frame + s->dst, &p, sizeof p);
}

// Sets the first index and pc. False if the step is not positive: the loop
// would never end.
static bool enter_loop(const lb_kstep *s, item *it) {
  int64_t begin = get_i64(it->frame, s->src[0]);
  bool runs = begin < get_i64(it->frame, s->src[1]);
  put_i64(it->frame, s->dst, begin);
  it->pc = runs ? it->pc + 1 : s->jump;
  return !runs || get_i64(it->frame, s->src[2]) > 0;
}

static void next_iteration(const lb_kinterp *m, const lb_kstep *s, item *it) {
  const lb_kstep *loop = &m->steps[s->jump];
  int64_t i = get_i64(it->frame, loop->dst);
  int64_t end = get_i64(it->frame, loop->src[1]);
  bool past = __builtin_add_overflow(i, get_i64(it->frame, loop->src[2]), &i);
  put_i64(it->frame, loop->dst, i);
  it->pc = !past && i < end ? s->jump + 1 : it->pc + 1;
}

// Runs to the next barrier or to the end.
static lb_status run_item(lb_kinterp *m, item *it) {
  lb_kfault wrong;
  for (;;) {
    const lb_kstep *s = &m->steps[it->pc];
    if (s->kind == STEP_DONE) return LB_OK;
    if (m->budget-- == 0) {
      m->budget = 0;
      return lb_error(LB_CANCELLED,
                      "kernel %s: instruction %u: the instruction "
                      "budget is used up",
                      m->k->name, s->inst);
    }
    switch (s->kind) {
      case STEP_LANES: s->fn(s, it->frame), it->pc++; break;
      case STEP_ACCESS:
        if (!m->accesses[it->pc](s, it->frame, m->memories, &wrong))
          return fault(m, s->inst, wrong.text);
        it->pc++;
        break;
      case STEP_PTR: move_ptr(s, it->frame), it->pc++; break;
      case STEP_LOOP:
        if (!enter_loop(s, it))
          return fault(m, s->inst, "has a step that is not positive");
        break;
      case STEP_NEXT: next_iteration(m, s, it); break;
      case STEP_IF: it->pc = it->frame[s->src[0]] ? it->pc + 1 : s->jump; break;
      case STEP_JUMP: it->pc = s->jump; break;
      default: return LB_OK;  // a barrier; run_group continues after it
    }
  }
}

// -- groups ------------------------------------------------------------------

static void preset(const lb_kinterp *m, uint32_t i, const lb_klaunch *l,
                   const uint32_t *group, uint32_t n_item, char *to) {
  const lb_kinst *in = &m->k->insts[i];
  const uint32_t *local = m->k->local;
  uint32_t id[3] = {n_item % local[0], n_item / local[0] % local[1],
                    n_item / local[0] / local[1]};
  lb_kptr p = {.memory = (uint32_t)in->imm};
  switch (in->op) {
    case LB_K_CONST: lb_kconst_write(in, to); break;
    case LB_K_GROUP_ID: put_i64(to, 0, group[in->axis]); break;
    case LB_K_LOCAL_ID: put_i64(to, 0, id[in->axis]); break;
    case LB_K_PARAM:
      if (in->flags & LB_K_POINTER)
        memcpy(to, &p, sizeof p);
      else
        memcpy(to, &l->args[in->imm].bits, lb_dtype_size(in->dtype));
      break;
    default: break;
  }
}

// Local memory is initially undefined; NaNs and -1 are easy to notice.
static void begin_group(lb_kinterp *m, const lb_klaunch *l,
                        const uint32_t *group) {
  if (m->local_size) memset(m->local, 0xff, m->local_size);
  for (uint32_t n = 0; n < m->n_items; n++) {
    char *frame = m->items[n].frame;
    lb_kptr p = {.memory = m->n_params};
    m->items[n].pc = 0;
    for (uint32_t i = 0; i < m->k->n_insts; i++) {
      uint8_t op = m->k->insts[i].op;
      if (op == LB_K_LOCAL) {
        memcpy(frame + m->frame_offset[i], &p, sizeof p);
        p.memory++;
      } else if (is_preset(op)) {
        preset(m, i, l, group, n, frame + m->frame_offset[i]);
      }
    }
  }
}

// Continues after the barrier that all work items have reached; *more is false
// at the end.
static lb_status pass_barrier(lb_kinterp *m, bool *more) {
  uint32_t pc = m->items[0].pc;
  *more = m->steps[pc].kind == STEP_BARRIER;
  for (uint32_t n = 0; n < m->n_items; n++) {
    uint32_t other = m->items[n].pc;
    if (other != pc)
      return fault(m, m->steps[*more ? pc : other].inst,
                   "is not reached by all work items of the group");
    m->items[n].pc += *more;
  }
  return LB_OK;
}

static lb_status run_group(lb_kinterp *m, const lb_klaunch *l,
                           const uint32_t *group) {
  bool more = true;
  begin_group(m, l, group);
  while (more) {
    for (uint32_t n = 0; n < m->n_items; n++) LB_TRY(run_item(m, &m->items[n]));
    LB_TRY(pass_barrier(m, &more));
  }
  return LB_OK;
}

static lb_status bind(lb_kinterp *m, const lb_klaunch *l) {
  if (l->n_args != m->n_params)
    return lb_error(LB_INVALID, "kernel %s takes %u arguments, not %u",
                    m->k->name, m->n_params, l->n_args);
  for (uint32_t i = 0; i < m->n_params; i++)
    m->memories[i] = (lb_kmemory){l->args[i].data, l->args[i].size};
  char *local = m->local;
  uint32_t n = m->n_params;
  for (uint32_t i = 0; i < m->k->n_insts; i++) {
    const lb_kinst *in = &m->k->insts[i];
    if (in->op != LB_K_LOCAL) continue;
    size_t size = (size_t)in->imm * lb_dtype_size(in->dtype);
    m->memories[n++] = (lb_kmemory){local, size};
    local += local_bytes(in);
  }
  m->budget = l->budget;
  return LB_OK;
}

lb_status lb_kinterp_run(lb_kinterp *m, const lb_klaunch *l) {
  LB_TRY(bind(m, l));
  uint32_t at[3];
  for (at[2] = 0; at[2] < l->groups[2]; at[2]++)
    for (at[1] = 0; at[1] < l->groups[1]; at[1]++)
      for (at[0] = 0; at[0] < l->groups[0]; at[0]++)
        LB_TRY(run_group(m, l, at));
  return LB_OK;
}
