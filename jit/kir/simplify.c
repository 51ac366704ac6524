// kir/simplify.c -- Three passes, repeated until nothing changes.
//
// rewrite: folds each instruction, and merges it with an equal one that is
//   visible there; flattens blocks with a known outcome; replaces GETs whose
//   value is known.
// hoist: moves loop-invariant integers, pointers and constants before the loop.
//   They cannot fail, so it does not matter if the loop never runs.
// sweep: removes instructions without effect.
//
// A pass makes a new kernel from an old one; map[i] is the new value of the old
// instruction i.
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "kir/eval.h"
#include "kir/fold.h"

#define MAX_ROUNDS 16

typedef lb_status pass_fn(const lb_kernel *k, lb_kernel *out);

// -- rewrite -----------------------------------------------------------------

typedef struct simplify_block {
  uint32_t open;   // LOOP or IF of the old kernel
  uint32_t start;  // of the new kernel: its values from here on are local to
                   // the block
  bool flattened;  // its LOOP or IF, ELSE and END are omitted
} simplify_block;

typedef struct rewriter {
  lb_kfolder fold;  // first: its callback casts its address
  lb_kbuilder out;
  const lb_kernel *k;
  uint32_t *map, *partner;
  uint32_t *known;  // of an old REG: its current value in the new kernel
  // Hash chains of new instructions, youngest first, to find equal values.
  uint32_t *head, n_heads, *link, *hash;
  uint32_t cap;  // of link and hash
  simplify_block blocks[LB_K_MAX_DEPTH];
  uint32_t depth;
} rewriter;

static uint32_t hash_of(const lb_kcand *c) {
  lb_kinst in = c->in;
  in.src = 0;
  uint64_t h = lb_hash(&in, sizeof in);
  h = lb_hash_seeded(c->src, in.n_src * sizeof *c->src, h);
  if (in.op == LB_K_SHUFFLE) h = lb_hash_seeded(c->table, in.lanes, h);
  return (uint32_t)h;
}

static bool is_equal(const rewriter *r, uint32_t i, const lb_kcand *c) {
  const lb_kinst *in = &r->out.k.insts[i];
  lb_kinst a = *in, b = c->in;
  a.src = b.src = 0;
  if (a.op == LB_K_SHUFFLE && b.op == LB_K_SHUFFLE) {
    if (a.lanes != b.lanes ||
        memcmp(lb_kernel_table(&r->out.k, in), c->table, a.lanes) != 0)
      return false;
    a.imm = b.imm = 0;
  }
  return memcmp(&a, &b, sizeof a) == 0 &&
         memcmp(lb_kernel_srcs(&r->out.k, in), c->src,
                b.n_src * sizeof *c->src) == 0;
}

static lb_kval find_equal(const rewriter *r, const lb_kcand *c, uint32_t h) {
  for (uint32_t i = r->head[h % r->n_heads]; i != LB_K_NONE; i = r->link[i])
    if (r->hash[i] == h && is_equal(r, i, c)) return i;
  return LB_K_NONE;
}

static bool grow_chains(rewriter *r, uint32_t need) {
  if (need <= r->cap) return true;
  uint32_t cap = 2 * need;
  uint32_t *link = realloc(r->link, cap * sizeof *link);
  if (link) r->link = link;
  uint32_t *hash = realloc(r->hash, cap * sizeof *hash);
  if (hash) r->hash = hash;
  if (!link || !hash) return false;
  r->cap = cap;
  return true;
}

// Appends c, and adds it to its hash chain if `chain`.
static lb_kval append(rewriter *r, const lb_kcand *c, uint32_t h, bool chain) {
  if (!grow_chains(r, r->out.k.n_insts + 1)) lb_kbuild_fail(&r->out, lb_oom());
  lb_kval v = lb_k_push(&r->out, c->in, c->src, c->table);
  if (v == LB_K_NONE) return v;
  r->hash[v] = h;
  r->link[v] =
      LB_K_NONE;  // not in a chain: end_values restores no head from it
  if (chain) {
    r->link[v] = r->head[h % r->n_heads];
    r->head[h % r->n_heads] = v;
  }
  return v;
}

static bool is_pure(uint8_t op) {
  uint8_t cls = lb_kop_infos[op].cls;
  return cls == LB_KC_EXACT || cls == LB_KC_PURE;
}

static lb_kval merge(rewriter *r, const lb_kcand *c) {
  if (!is_pure(c->in.op)) return append(r, c, 0, false);
  uint32_t h = hash_of(c);
  lb_kval v = find_equal(r, c, h);
  return v != LB_K_NONE ? v : append(r, c, h, true);
}

static lb_kval constant(lb_kfolder *f, lb_ktype t, uint64_t bits) {
  lb_kcand c = {.in = {.op = LB_K_CONST,
                       .dtype = t.dtype,
                       .lanes = t.lanes,
                       .imm = (int64_t)bits}};
  return merge((rewriter *)(void *)f, &c);
}

static lb_kcand candidate(const rewriter *r, uint32_t i) {
  lb_kcand c = {.in = r->k->insts[i]};
  for (uint32_t n = 0; n < c.in.n_src; n++)
    c.src[n] = r->map[r->k->pool[c.in.src + n]];
  if (c.in.op == LB_K_SHUFFLE) {
    c.table = lb_kernel_table(r->k, &c.in);
    c.in.imm = 0;
  }
  return c;
}

static lb_kval emit(rewriter *r, uint32_t i) {
  lb_kcand c = candidate(r, i);
  lb_kval v = LB_K_NONE;
  switch (lb_kfold(&r->fold, &c, &v)) {
    case LB_KFOLD_EMIT: return merge(r, &c);
    case LB_KFOLD_VALUE: return v;
    default: return LB_K_NONE;
  }
}

// -- rewrite: registers ------------------------------------------------------

// Registers SET between two old instructions have no known value any more.
static void forget_set(rewriter *r, uint32_t from, uint32_t to) {
  for (uint32_t i = from; i < to; i++)
    if (r->k->insts[i].op == LB_K_SET)
      r->known[r->k->pool[r->k->insts[i].src]] = LB_K_NONE;
}

// Nor have registers whose value belongs to a block that ends.
static void forget_ended(rewriter *r, uint32_t start, uint32_t old_end) {
  for (uint32_t i = 0; i < old_end; i++)
    if (r->known[i] != LB_K_NONE && r->known[i] >= start)
      r->known[i] = LB_K_NONE;
}

static lb_kval rewrite_reg(rewriter *r, uint32_t i) {
  const uint32_t *src = lb_kernel_srcs(r->k, &r->k->insts[i]);
  lb_kval v = LB_K_NONE;
  switch (r->k->insts[i].op) {
    case LB_K_REG:
      v = emit(r, i);
      r->known[i] = r->map[src[0]];
      break;
    case LB_K_SET:
      v = emit(r, i);
      r->known[src[0]] = r->map[src[1]];
      break;
    default:  // GET
      v = r->known[src[0]];
      if (v == LB_K_NONE) v = r->known[src[0]] = emit(r, i);
      break;
  }
  return v;
}

// -- rewrite: blocks ---------------------------------------------------------

static void push_block(rewriter *r, uint32_t open, bool flattened) {
  r->blocks[r->depth++] = (simplify_block){open, r->out.k.n_insts, flattened};
}

// Removes the values of the block from their chains, youngest first.
static void end_values(rewriter *r, uint32_t start, uint32_t old_end) {
  for (uint32_t v = r->out.k.n_insts; v-- > start;) {
    uint32_t *head = &r->head[r->hash[v] % r->n_heads];
    if (*head == v) *head = r->link[v];
  }
  forget_ended(r, start, old_end);
}

// Iterations of a loop with known bounds: 0, 1, or 2 for more or unknown.
static int iterations_of(const rewriter *r, uint32_t i) {
  const uint32_t *src = lb_kernel_srcs(r->k, &r->k->insts[i]);
  uint64_t begin, end, step;
  int64_t next;
  if (!lb_kfold_const(&r->out, r->map[src[0]], &begin) ||
      !lb_kfold_const(&r->out, r->map[src[1]], &end))
    return 2;
  if ((int64_t)begin >= (int64_t)end) return 0;
  if (!lb_kfold_const(&r->out, r->map[src[2]], &step) || (int64_t)step <= 0)
    return 2;
  bool past = __builtin_add_overflow((int64_t)begin, (int64_t)step, &next);
  return past || next >= (int64_t)end ? 1 : 2;
}

// The functions below return the next old instruction to process.

static uint32_t enter_loop(rewriter *r, uint32_t i) {
  int iterations = iterations_of(r, i);
  if (iterations == 0) return r->partner[i] + 1;
  if (iterations == 1) {
    r->map[i] = r->map[r->k->pool[r->k->insts[i].src]];
    push_block(r, i, true);
    return i + 1;
  }
  forget_set(r, i, r->partner[i]);
  push_block(r, i, false);
  r->map[i] = emit(r, i);
  return i + 1;
}

static uint32_t enter_if(rewriter *r, uint32_t i) {
  uint64_t cond;
  uint32_t part = r->partner[i];
  if (!lb_kfold_const(&r->out, r->map[r->k->pool[r->k->insts[i].src]], &cond)) {
    emit(r, i);
    push_block(r, i, false);
    return i + 1;
  }
  if (!cond && r->k->insts[part].op == LB_K_END) return part + 1;
  push_block(r, i, true);
  return cond ? i + 1 : part + 1;
}

static uint32_t enter_else(rewriter *r, uint32_t i) {
  simplify_block *b = &r->blocks[r->depth - 1];
  if (b->flattened) return r->partner[i];
  end_values(r, b->start, i);
  forget_set(r, b->open, i);
  emit(r, i);
  b->start = r->out.k.n_insts;
  return i + 1;
}

static uint32_t close_block(rewriter *r, uint32_t i) {
  const simplify_block *b = &r->blocks[--r->depth];
  if (b->flattened) return i + 1;
  end_values(r, b->start, i);
  forget_set(r, b->open, i);
  emit(r, i);
  return i + 1;
}

static uint32_t rewrite_inst(rewriter *r, uint32_t i) {
  switch (r->k->insts[i].op) {
    case LB_K_LOOP: return enter_loop(r, i);
    case LB_K_IF: return enter_if(r, i);
    case LB_K_ELSE: return enter_else(r, i);
    case LB_K_END: return close_block(r, i);
    case LB_K_REG:
    case LB_K_GET:
    case LB_K_SET: r->map[i] = rewrite_reg(r, i); break;
    default: r->map[i] = emit(r, i); break;
  }
  return i + 1;
}

static uint32_t *new_none(size_t n) {
  uint32_t *p = malloc((n + 1) * sizeof *p);
  if (p) memset(p, 0xff, (n + 1) * sizeof *p);  // LB_K_NONE
  return p;
}

static bool rewriter_init(rewriter *r, const lb_kernel *k) {
  lb_kbuild_init(&r->out, k->name);
  memcpy(r->out.k.local, k->local, sizeof k->local);
  r->k = k;
  r->n_heads = k->n_insts / 2 + 1;
  r->map = new_none(k->n_insts);
  r->partner = new_none(k->n_insts);
  r->known = new_none(k->n_insts);
  r->head = new_none(r->n_heads);
  r->fold = (lb_kfolder){.out = &r->out, .constant = constant};
  r->fold.frame = aligned_alloc(LB_KFRAME_ALIGN, LB_KFOLD_FRAME);
  return r->map && r->partner && r->known && r->head && r->fold.frame;
}

static lb_status rewrite(const lb_kernel *k, lb_kernel *out) {
  rewriter r = {0};
  if (rewriter_init(&r, k)) {
    lb_kernel_partners(k, r.partner);
    for (uint32_t i = 0; i < k->n_insts && !lb_failed(r.out.error);)
      i = rewrite_inst(&r, i);
  } else {
    lb_kbuild_fail(&r.out, lb_oom());
  }
  free(r.map);
  free(r.partner);
  free(r.known);
  free(r.head);
  free(r.link);
  free(r.hash);
  free(r.fold.frame);
  return lb_kernel_take(&r.out, out);
}

// -- passes that move and remove ---------------------------------------------

// Builds a kernel of the old instructions order[0..n), in that order.
static lb_status rebuild(const lb_kernel *k, const uint32_t *order, uint32_t n,
                         lb_kernel *out) {
  lb_kbuilder b;
  lb_kbuild_init(&b, k->name);
  memcpy(b.k.local, k->local, sizeof k->local);
  uint32_t *map = new_none(k->n_insts);
  if (!map) lb_kbuild_fail(&b, lb_oom());
  for (uint32_t i = 0; map && i < n; i++) {
    const lb_kinst *in = &k->insts[order[i]];
    lb_kval src[4];
    for (uint32_t s = 0; s < in->n_src; s++) src[s] = map[k->pool[in->src + s]];
    const uint8_t *table =
        in->op == LB_K_SHUFFLE ? lb_kernel_table(k, in) : NULL;
    map[order[i]] = lb_k_push(&b, *in, src, table);
  }
  free(map);
  return lb_kernel_take(&b, out);
}

static bool may_hoist(const lb_kinst *in) {
  if (!is_pure(in->op) || in->lanes != 1) return in->op == LB_K_CONST;
  return in->op == LB_K_CONST || !lb_dtype_is_float(in->dtype) ||
         (in->flags & LB_K_POINTER);
}

// Whether the operands of i are available before `loop`; before[s] is the loop
// that s is hoisted out of.
static bool ready_before(const lb_kernel *k, uint32_t i, uint32_t loop,
                         const uint32_t *before) {
  const lb_kinst *in = &k->insts[i];
  for (uint32_t n = 0; n < in->n_src; n++) {
    uint32_t s = k->pool[in->src + n];
    bool ready = before[s] != LB_K_NONE ? before[s] <= loop : s < loop;
    if (!ready) return false;
  }
  return true;
}

// The outermost loop that i can be hoisted out of, with no IF in between.
static uint32_t loop_to_leave(const lb_kernel *k, uint32_t i,
                              const uint32_t *parents, const uint32_t *before) {
  uint32_t found = LB_K_NONE, p = parents[i];
  while (p != LB_K_NONE && k->insts[p].op == LB_K_LOOP &&
         ready_before(k, i, p, before)) {
    found = p;
    p = parents[p];
  }
  return found;
}

// Fills `order` with all instructions; hoisted ones come before their LOOP.
static void order_hoisted(const lb_kernel *k, const uint32_t *before,
                          const uint32_t *partner, uint32_t *order) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < k->n_insts; i++) {
    if (k->insts[i].op == LB_K_LOOP)
      for (uint32_t j = i + 1; j < partner[i]; j++)
        if (before[j] == i) order[n++] = j;
    if (before[i] == LB_K_NONE) order[n++] = i;
  }
}

static lb_status hoist(const lb_kernel *k, lb_kernel *out) {
  uint32_t *parents = new_none(k->n_insts), *partner = new_none(k->n_insts);
  uint32_t *before = new_none(k->n_insts), *order = new_none(k->n_insts);
  lb_status st = LB_OK;
  *out = (lb_kernel){0};
  if (parents && partner && before && order) {
    lb_kernel_parents(k, parents);
    lb_kernel_partners(k, partner);
    for (uint32_t i = 0; i < k->n_insts; i++)
      if (may_hoist(&k->insts[i]))
        before[i] = loop_to_leave(k, i, parents, before);
    order_hoisted(k, before, partner, order);
    st = rebuild(k, order, k->n_insts, out);
  } else {
    st = lb_oom();
  }
  free(parents);
  free(partner);
  free(before);
  free(order);
  return st;
}

// -- sweep -------------------------------------------------------------------

typedef struct sweeper {
  const lb_kernel *k;
  uint32_t *parents, *partner;
  uint32_t *sets;  // of a REG its last SET, of a SET the previous one
  uint32_t *todo, n_todo;
  uint8_t *live;
} sweeper;

static void mark_live(sweeper *w, uint32_t i) {
  if (i == LB_K_NONE || w->live[i]) return;
  w->live[i] = true;
  w->todo[w->n_todo++] = i;
}

static bool is_root(const lb_kinst *in) {
  return lb_kop_infos[in->op].cls == LB_KC_EFFECT && in->op != LB_K_SET;
}

// Marks what a live instruction needs: its operands, its block, and for a
// register that is read all its SETs.
static void mark_needs(sweeper *w, uint32_t i) {
  const lb_kinst *in = &w->k->insts[i];
  for (uint32_t n = 0; n < in->n_src; n++)
    mark_live(w, w->k->pool[in->src + n]);
  mark_live(w, w->parents[i]);
  if (in->op == LB_K_REG)
    for (uint32_t s = w->sets[i]; s != LB_K_NONE; s = w->sets[s])
      mark_live(w, s);
  if (in->op == LB_K_LOOP || in->op == LB_K_IF) {
    uint32_t end = w->partner[i];
    mark_live(w, w->k->insts[end].op == LB_K_ELSE ? w->partner[end] : end);
  }
}

static uint32_t sweep_all(sweeper *w) {
  const lb_kernel *k = w->k;
  lb_kernel_parents(k, w->parents);
  lb_kernel_partners(k, w->partner);
  for (uint32_t i = 0; i < k->n_insts; i++) {
    if (is_root(&k->insts[i])) mark_live(w, i);
    if (k->insts[i].op != LB_K_SET) continue;
    uint32_t reg = k->pool[k->insts[i].src];
    w->sets[i] = w->sets[reg];
    w->sets[reg] = i;
  }
  while (w->n_todo) mark_needs(w, w->todo[--w->n_todo]);
  uint32_t n = 0;
  for (uint32_t i = 0; i < k->n_insts; i++)
    if (w->live[i]) w->todo[n++] = i;
  return n;
}

static lb_status sweep(const lb_kernel *k, lb_kernel *out) {
  sweeper w = {.k = k};
  lb_status st = LB_OK;
  *out = (lb_kernel){0};
  w.parents = new_none(k->n_insts);
  w.partner = new_none(k->n_insts);
  w.sets = new_none(k->n_insts);
  w.todo = new_none(k->n_insts);
  w.live = calloc(k->n_insts + 1u, 1);
  if (w.parents && w.partner && w.sets && w.todo && w.live)
    st = rebuild(k, w.todo, sweep_all(&w), out);
  else
    st = lb_oom();
  free(w.parents);
  free(w.partner);
  free(w.sets);
  free(w.todo);
  free(w.live);
  return st;
}

// -- driver ------------------------------------------------------------------

// Replaces *k by the result of the pass.
static lb_status apply(pass_fn *pass, lb_kernel *k) {
  lb_kernel next;
  LB_TRY(pass(k, &next));
#ifndef NDEBUG
  lb_status st = lb_kernel_verify(&next);
  if (lb_failed(st)) {
    lb_kernel_fini(&next);
    return lb_status_note(st, "after simplifying");
  }
#endif
  lb_kernel_fini(k);
  *k = next;
  return LB_OK;
}

static lb_status round_of(lb_kernel *k, bool *changed) {
  lb_kernel before;
  LB_TRY(lb_kernel_copy(k, &before));
  lb_status st = apply(rewrite, k);
  if (!lb_failed(st)) st = apply(hoist, k);
  if (!lb_failed(st)) st = apply(sweep, k);
  *changed = !lb_failed(st) && !lb_kernel_eq(&before, k);
  lb_kernel_fini(&before);
  return st;
}

lb_status lb_kernel_simplify(lb_kernel *k) {
  lb_kernel next;
  LB_TRY(lb_kernel_copy(k, &next));
  bool changed = true;
  lb_status st = LB_OK;
  for (int i = 0; i < MAX_ROUNDS && changed && !lb_failed(st); i++)
    st = round_of(&next, &changed);
  if (lb_failed(st)) {
    lb_kernel_fini(&next);
    return st;
  }
  lb_kernel_fini(k);
  *k = next;
  return LB_OK;
}
