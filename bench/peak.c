// bench/peak.c -- prints what one core of this machine can do, as JSON: the
// first lines of every report. LIMBER_ISA is honoured.
#include <stdio.h>

#include "bench/machine.h"

static void print_level(const bench_machine *m, bench_level level) {
  size_t bytes = bench_level_bytes(m, level);
  printf("%s\"%s\": {\"bytes\": %zu, \"gb_per_s\": %.1f}", level ? ", " : "",
         bench_level_name(level), bytes, bench_read_speed(m->bits, bytes));
}

static void print_machine(const bench_machine *m) {
  lb_strbuf isa = {0};
  lb_target_print(&m->isa, &isa);
  printf("{\"isa\": \"%s\", \"bits\": %d, \"gflops\": %.1f, ",
         lb_strbuf_str(&isa), m->bits, bench_fma_peak(m->bits));
  printf("\"caches\": {\"l1d\": %zu, \"l2\": %zu, \"l3\": %zu}, \"read\": {",
         m->caches.l1d, m->caches.l2, m->caches.l3);
  for (bench_level i = 0; i < BENCH_LEVELS; i++) print_level(m, i);
  printf("}}\n");
  lb_strbuf_fini(&isa);
}

int main(void) {
  bench_machine m;
  lb_status st = bench_machine_init(&m);
  if (lb_failed(st)) {
    fprintf(stderr, "peak: %s\n", lb_status_message(st));
    lb_status_drop(st);
    return 2;
  }
  print_machine(&m);
  return 0;
}
