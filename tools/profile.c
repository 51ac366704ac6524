// tools/profile.c -- the steps of one run, as a table or as JSON.
#include "profile.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"

static void free_step(limber_step *s) {
  free((char *)s->name);
  free((char *)s->op);
  free((char *)s->tier);
  free((char *)s->kernel);
  free((char *)s->reason);
  free((char *)s->reason_text);
  free((char *)s->pass);
  free((char *)s->proof);
  free((char *)s->kind);
}

void profile_add(void *user, const limber_step *step) {
  profile *p = user;
  if (p->n == p->cap) {
    size_t cap = p->cap ? p->cap * 2 : 256;
    limber_step *steps = realloc(p->steps, cap * sizeof *steps);
    p->lost |= !steps;
    if (!steps) return;
    p->steps = steps;
    p->cap = cap;
  }
  limber_step s = *step;
  s.name = strdup(step->name);
  s.op = strdup(step->op);
  s.tier = strdup(step->tier);
  s.kernel = strdup(step->kernel);
  s.reason = strdup(step->reason);
  s.reason_text = strdup(step->reason_text);
  s.pass = step->pass ? strdup(step->pass) : NULL;
  s.proof = strdup(step->proof);
  s.kind = strdup(step->kind);
  if (s.name && s.op && s.tier && s.kernel && s.reason && s.reason_text &&
      s.proof && s.kind && !s.pass == !step->pass) {
    p->steps[p->n++] = s;
  } else {
    p->lost = true;
    free_step(&s);
  }
}

void profile_fini(profile *p) {
  for (size_t i = 0; i < p->n; i++) free_step(&p->steps[i]);
  free(p->steps);
  *p = (profile){0};
}

// -- the table ---------------------------------------------------------------

static int64_t time_of(const limber_step *s) { return s->end_ns - s->start_ns; }

static bool is_step(const limber_step *s) { return *s->kind; }

static bool same_pass(const limber_step *a, const limber_step *b) {
  return a->pass && b->pass ? !strcmp(a->pass, b->pass) : a->pass == b->pass;
}

static bool same_step(const limber_step *a, const limber_step *b) {
  return a->rows == b->rows && a->cols == b->cols && a->k == b->k &&
         a->len == b->len && a->skipped == b->skipped && same_pass(a, b) &&
         !strcmp(a->name, b->name) && !strcmp(a->op, b->op) &&
         !strcmp(a->kind, b->kind) && !strcmp(a->tier, b->tier) &&
         !strcmp(a->reason, b->reason) && !strcmp(a->kernel, b->kernel);
}

// Merges steps that ran several times, for micro-batches or iterations of a
// loop, into one line with the sum of their times.
static void merge(profile *p) {
  size_t n = 0;
  for (size_t i = 0; i < p->n; i++) {
    limber_step *s = &p->steps[i];
    size_t k = 0;
    while (k < n && !same_step(&p->steps[k], s)) k++;
    if (k == n) {
      p->steps[n++] = *s;
      continue;
    }
    limber_step *to = &p->steps[k];
    to->end_ns += time_of(s);
    to->bytes += s->bytes;
    to->flops += s->flops;
    to->outer += s->outer;
    free_step(s);
  }
  p->n = n;
}

static int longest_first(const void *a, const void *b) {
  int64_t x = time_of(a), y = time_of(b);
  return (x < y) - (x > y);
}

static const char *sizes_of(const limber_step *s, char *buf, size_t cap) {
  if (!s->kernel[0]) return "-";
  int n = snprintf(buf, cap, "%" PRId64 "x%" PRId64, s->rows, s->cols);
  if (s->k && (size_t)n < cap)
    n += snprintf(buf + n, cap - (size_t)n, "x%" PRId64, s->k);
  if (s->len && (size_t)n < cap)
    n += snprintf(buf + n, cap - (size_t)n, "x%" PRId64, s->len);
  if (s->outer > 1 && (size_t)n < cap)
    snprintf(buf + n, cap - (size_t)n, "*%" PRId64, s->outer);
  return buf;
}

static void print_step(const limber_step *s, double total) {
  char sizes[96];
  double ns = (double)(time_of(s) > 0 ? time_of(s) : 1);
  printf("%10.1f  %5.1f  %-11s  %7.1f  %7.1f  %-18s  %-16s  %s\n", ns / 1e3,
         100 * ns / total, s->tier, (double)s->bytes / ns,
         (double)s->flops / ns, sizes_of(s, sizes, sizeof sizes), s->op,
         s->name);
}

static void print_tiers(const profile *p, double total) {
  static const char *const tiers[] = {"reference", "pack", "reusable",
                                      "specialised", "fused"};
  for (size_t t = 0; t < sizeof tiers / sizeof *tiers; t++) {
    int64_t ns = 0;
    size_t n = 0;
    for (size_t i = 0; i < p->n; i++) {
      if (strcmp(p->steps[i].tier, tiers[t])) continue;
      ns += time_of(&p->steps[i]);
      n++;
    }
    if (n)
      printf("%10.1f  %5.1f  %-11s  %zu steps\n", (double)ns / 1e3,
             100 * (double)ns / total, tiers[t], n);
  }
}

void profile_print(profile *p) {
  int64_t sum = 0;
  merge(p);
  for (size_t i = 0; i < p->n; i++) sum += time_of(&p->steps[i]);
  double total = sum > 0 ? (double)sum : 1;
  if (p->n) qsort(p->steps, p->n, sizeof *p->steps, longest_first);
  printf("\n%10s  %5s  %-11s  %7s  %7s  %-18s  %-16s  %s\n", "us", "%", "tier",
         "GB/s", "Gflop/s", "sizes", "op", "step");
  for (size_t i = 0; i < p->n; i++)
    if (is_step(&p->steps[i])) print_step(&p->steps[i], total);
  printf("\n");
  print_tiers(p, total);
}

// Prints the form and the facts of a kernel; the JSON has its full spec. For a
// copy it prints that it is one, for a removed node the pass.
static const char *short_kernel(const limber_step *s, char *buf, size_t cap) {
  const char *facts = strstr(s->kernel, " | ");
  if (s->pass) {
    snprintf(buf, cap, "by %s", s->pass);
    return buf;
  }
  if (!strcmp(s->kind, "copy")) {
    snprintf(buf, cap, "copy of %" PRIu64 " bytes", s->bytes / 2);
    return buf;
  }
  snprintf(buf, cap, "%.*s %s", (int)strcspn(s->kernel, " "), s->kernel,
           facts ? facts + 3 : "");
  return buf;
}

static void print_choice(const limber_step *s) {
  char kernel[200];
  printf("%-11s  %-10s  %-34s  %-18s  %s\n", is_step(s) ? s->tier : "-",
         s->reason, short_kernel(s, kernel, sizeof kernel), s->op, s->name);
}

// Prints each reason that occurs, with its explanation.
static void print_reasons(const profile *p) {
  for (size_t i = 0; i < p->n; i++) {
    size_t k = 0, n = 0;
    while (strcmp(p->steps[k].reason, p->steps[i].reason)) k++;
    if (k < i) continue;
    for (k = i; k < p->n; k++)
      n += !strcmp(p->steps[k].reason, p->steps[i].reason);
    printf("%6zu %-10s  %s\n", n, p->steps[i].reason, p->steps[i].reason_text);
  }
}

static void print_proofs(const profile *p, const char *title, bool removed) {
  size_t n = 0;
  for (size_t i = 0; i < p->n; i++) {
    const limber_step *s = &p->steps[i];
    if (!s->skipped || removed != (s->pass != NULL)) continue;
    if (!n++) printf("\n%s\n", title);
    printf("  %s: %s\n", s->name, s->proof);
  }
}

typedef struct step_counts {
  uint64_t steps, launches, calls, copies, copied_bytes;
  uint64_t skipped;  // nodes of the graph; not those that a pass removed
} step_counts;

static step_counts count_steps(const profile *p) {
  step_counts n = {0};
  for (size_t i = 0; i < p->n; i++) {
    const limber_step *s = &p->steps[i];
    bool copy = !strcmp(s->kind, "copy");
    n.steps += is_step(s);
    n.launches += !strcmp(s->kind, "launch");
    n.calls += !strcmp(s->kind, "call");
    n.copies += copy;
    n.copied_bytes += copy ? s->bytes / 2 : 0;  // read once and written once
    n.skipped += s->skipped && !s->pass;
  }
  return n;
}

static void print_counts(const step_counts *n) {
  printf(
      "\nsteps %" PRIu64 ", launches %" PRIu64 ", calls %" PRIu64
      ", copies %" PRIu64 " (%" PRIu64 " bytes), skipped nodes %" PRIu64 "\n\n",
      n->steps, n->launches, n->calls, n->copies, n->copied_bytes, n->skipped);
}

void profile_explain(profile *p) {
  step_counts n = count_steps(p);
  merge(p);
  printf("\n%-11s  %-10s  %-34s  %-18s  %s\n", "tier", "reason", "kernel", "op",
         "step");
  for (size_t i = 0; i < p->n; i++) print_choice(&p->steps[i]);
  print_proofs(p, "removed, because they never do anything:", true);
  print_proofs(p, "skipped:", false);
  print_counts(&n);
  print_reasons(p);
}

// -- JSON --------------------------------------------------------------------

static json_t *step_json(const limber_step *s) {
  return json_pack(
      "{s:o, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, "
      "s:s, s:s, s:b, s:o, s:s?, s:b, s:b}",
      "name", text_json(s->name), "op", s->op, "kind", s->kind, "tier", s->tier,
      "kernel", s->kernel, "rows", (json_int_t)s->rows, "cols",
      (json_int_t)s->cols, "k", (json_int_t)s->k, "len", (json_int_t)s->len,
      "outer", (json_int_t)s->outer, "bytes", (json_int_t)s->bytes, "flops",
      (json_int_t)s->flops, "start_ns", (json_int_t)s->start_ns, "end_ns",
      (json_int_t)s->end_ns, "reason", s->reason, "reason_text", s->reason_text,
      "skipped", s->skipped, "proof", text_json(s->proof), "pass", s->pass,
      "optimized", s->optimized, "runtime_skippable", s->runtime_skippable);
}

json_t *profile_json(const profile *p) {
  json_t *steps = json_array();
  for (size_t i = 0; i < p->n; i++)
    json_array_append_new(steps, step_json(&p->steps[i]));
  return steps;
}

json_t *profile_counts_json(const profile *p) {
  step_counts n = count_steps(p);
  return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "steps",
                   (json_int_t)n.steps, "launches", (json_int_t)n.launches,
                   "calls", (json_int_t)n.calls, "copies", (json_int_t)n.copies,
                   "copied_bytes", (json_int_t)n.copied_bytes, "skipped",
                   (json_int_t)n.skipped);
}

json_t *load_node_json(const limber_node *n) {
  return json_pack("{s:o, s:s, s:b, s:b, s:b, s:o, s:s?}", "name",
                   text_json(n->name), "op", n->op, "optimized", n->optimized,
                   "runtime_skippable", n->runtime_skippable, "skipped",
                   n->skipped, "proof", text_json(n->proof), "pass", n->pass);
}

json_t *run_node_json(const limber_node *n) {
  json_t *row = load_node_json(n);
  json_object_update_new(
      row, json_pack("{s:s, s:o, s:s, s:s}", "disposition", n->disposition,
                     "step", n->step < 0 ? json_null() : json_integer(n->step),
                     "reason", n->reason, "reason_text", n->reason_text));
  return row;
}
