// plan/cover_test.c -- what stands for a partition whose kernel is not there.
#include "graph/build_test.h"
#include "graph/infer.h"
#include "plan/plan.h"

enum { MAX_KERNELS = 4 };

// A pack that is never run: only what it has is asked.
typedef struct small_pack {
  lb_pack head;
  lb_pack_entry entries[MAX_KERNELS];
  lb_spec specs[MAX_KERNELS];
  uint8_t code[MAX_KERNELS];
} small_pack;

static void add_spec(small_pack *p, const lb_spec *s) {
  uint32_t n = p->head.n++, at = n;
  uint64_t hash = lb_hash(s, lb_spec_bytes(s));
  for (; at > 0 && p->entries[at - 1].hash > hash; at--)
    p->entries[at] = p->entries[at - 1];
  p->specs[n] = *s;
  p->entries[at] = (lb_pack_entry){
      .hash = hash,
      .spec = (uint32_t)(offsetof(small_pack, specs) + n * sizeof *s),
      .code = n};
}

// A chain of operations of one input.
static void add_chain(small_pack *p, const lb_sop *ops, int n) {
  lb_spec_builder b;
  lb_spec s;
  lb_spec_begin(&b, LB_FORM_MAP);
  uint8_t x = lb_spec_input(&b, LB_F32, LB_LAYOUT_FULL);
  for (int i = 0; i < n; i++) x = lb_spec_node(&b, ops[i], LB_F32, &x, 1);
  lb_spec_output(&b, x, LB_LAYOUT_FULL);
  ok(lb_spec_finish(&b, &s));
  add_spec(p, &s);
}

#define ADD_CHAIN(p, ...)                 \
  add_chain((p), (lb_sop[]){__VA_ARGS__}, \
            (int)(sizeof((lb_sop[]){__VA_ARGS__}) / sizeof(lb_sop)))

static small_pack empty_pack(void) {
  small_pack p = {.head = {.magic = LB_PACK_MAGIC}};
  p.head.code = offsetof(small_pack, code);
  return p;
}

// The plan of abs(neg(exp(x))) with this pack: a letter a step, L with what it
// skips, and the arena it needs.
static size_t plan_text_of(small_pack *pack, bool deterministic, char *out,
                           size_t cap) {
  lb_graph *g;
  lb_program prog;
  lb_partitioning parts;
  lb_slots slots;
  lb_plan *plan;
  ok(lb_graph_new(&g));
  lb_region *r = g->main;
  lb_value *x = param(r, "x", LB_F32, DIMS(3, 5));
  lb_value *a = NODE1(r, Exp, "a", x), *b = NODE1(r, Neg, "b", a);
  RESULTS(r, NODE1(r, Abs, "c", b));
  ok(lb_infer_graph(g));
  ok(lb_program_init(&prog, g, 0));
  ok(lb_partitioning_init(&parts, g));
  ok(lb_slots_init(&slots, 8, &pack->head));
  prog.parts = &parts;
  prog.slots = &slots;
  prog.deterministic = deterministic;
  lb_tensor in = tensor(LB_F32, NULL, DIMS(3, 5));
  ok(lb_plan_first(&prog, r, &in, &(bool){true}, &plan));
  size_t n = 0, arena = plan->arena_bytes;
  for (uint32_t i = 0; i < plan->n_steps; i++) {
    const lb_step *s = &plan->steps[i];
    n += (size_t)(s->kind == LB_STEP_LAUNCH
                      ? snprintf(out + n, cap - n, "L%u ", s->skip)
                      : snprintf(out + n, cap - n, "C "));
  }
  lb_plan_release(plan);
  lb_slots_fini(&slots);
  lb_partitioning_fini(&parts);
  lb_program_fini(&prog);
  lb_graph_free(g);
  return arena;
}

static size_t plan_text(small_pack *pack, char *out, size_t cap) {
  return plan_text_of(pack, false, out, cap);
}

static void without_a_pack_every_node_is_called(void **state) {
  (void)state;
  small_pack p = empty_pack();
  char text[64];
  assert_int_not_equal(plan_text(&p, text, sizeof text), 0);
  assert_string_equal(text, "L3 C C C ");
}

static void a_kernel_of_the_pack_needs_no_cover(void **state) {
  (void)state;
  small_pack p = empty_pack();
  char text[64];
  ADD_CHAIN(&p, LB_S_EXP, LB_S_NEG, LB_S_ABS);
  // Nor temporaries: the result is the caller's memory.
  assert_int_equal(plan_text(&p, text, sizeof text), 0);
  assert_string_equal(text, "L0 ");
}

static void the_longest_pieces_of_the_pack_cover_it(void **state) {
  (void)state;
  small_pack p = empty_pack();
  char text[64];
  ADD_CHAIN(&p, LB_S_EXP);
  plan_text(&p, text, sizeof text);
  assert_string_equal(text, "L3 L0 C C ");
  ADD_CHAIN(&p, LB_S_ABS);
  plan_text(&p, text, sizeof text);
  assert_string_equal(text, "L3 L0 C L0 ");
  ADD_CHAIN(&p, LB_S_EXP, LB_S_NEG);
  plan_text(&p, text, sizeof text);
  assert_string_equal(text, "L2 L0 L0 ");
}

static void what_gives_other_bits_stays_alone_if_asked(void **state) {
  (void)state;
  small_pack p = empty_pack();
  char text[64];
  plan_text_of(&p, true, text, sizeof text);
  assert_string_equal(text, "C C C ");
  ADD_CHAIN(&p, LB_S_ABS);
  plan_text_of(&p, true, text, sizeof text);
  assert_string_equal(text, "C C L0 ");
  ADD_CHAIN(&p, LB_S_EXP, LB_S_NEG);
  plan_text_of(&p, true, text, sizeof text);
  assert_string_equal(text, "L2 L0 L0 ");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(without_a_pack_every_node_is_called),
      cmocka_unit_test(a_kernel_of_the_pack_needs_no_cover),
      cmocka_unit_test(the_longest_pieces_of_the_pack_cover_it),
      cmocka_unit_test(what_gives_other_bits_stays_alone_if_asked),
  };
  return cmocka_run_group_tests_name("cover", tests, NULL, NULL);
}
