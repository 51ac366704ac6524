// tools/doctor.c -- `limber doctor`: shows the environment that Limber detects
// on this machine, and the settings in effect.
#include <inttypes.h>
#include <stdio.h>

#include "json.h"
#include "args.h"

typedef struct doctor_job {
  bool json;
  limber_runtime_info info;
} doctor_job;

static const option_row rows[] = {
    {.name = "json",
     .kind = OPTION_FLAG,
     .offset = offsetof(doctor_job, json),
     .help = "print JSON"},
};

static const command_info command = {
    .name = "doctor",
    .usage = "[OPTION...]",
    .about =
        "Shows the version, the instruction set that kernels may use, the "
        "number\n"
        "of threads, the compiler, the built-in kernels, the caches, and "
        "whether\n"
        "reusable kernels are preferred. The exit code is 1 if the compiler "
        "is\n"
        "missing.\n",
    .more = "",
    .options = rows,
    .n_options = sizeof rows / sizeof *rows,
};

static bool off(const doctor_job *j) { return !*j->info.worker; }

static bool is_ok(const doctor_job *j) {
  return off(j) || j->info.worker_found;
}

static const char *or_none(const char *text) { return *text ? text : "none"; }

static void print_text(const doctor_job *j) {
  const limber_runtime_info *i = &j->info;
  printf("version       %s\n", limber_version());
  printf("instructions  %s\n", i->isa);
  printf("threads       %d\n", i->threads);
  printf("kernels       built in for: %s\n", or_none(i->pack));
  if (off(j))
    printf("compiler      off, by LIMBER_JIT\n");
  else
    printf("compiler      %s%s\n", i->worker,
           i->worker_found ? "" : ": is not there, or is not executable");
  printf("memory        %" PRIu64 " bytes for kernels and primitives\n",
         i->cache_capacity);
  printf("disk          %s\n", or_none(i->store));
  printf("reusable kernels are %spreferred (set by: %s)\n",
         i->prefer_reusable_kernels ? "" : "not ", i->prefer_reusable_from);
}

static void print_json(const doctor_job *j) {
  const limber_runtime_info *i = &j->info;
  json_t *prefer = json_pack("{s:b, s:s}", "on", i->prefer_reusable_kernels,
                             "from", i->prefer_reusable_from);
  json_t *root = json_pack(
      "{s:s, s:s, s:i, s:s, s:o, s:b, s:I, s:o, s:o}", "version",
      limber_version(), "isa", i->isa, "threads", i->threads, "pack", i->pack,
      "worker", off(j) ? json_null() : text_json(i->worker), "worker_found",
      i->worker_found, "cache_capacity", (json_int_t)i->cache_capacity, "store",
      *i->store ? text_json(i->store) : json_null(), "prefer_reusable_kernels",
      prefer);
  json_dumpf(root, stdout, JSON_INDENT(2));
  printf("\n");
  json_decref(root);
}

int command_doctor(int argc, char **argv) {
  doctor_job j = {.info.size = sizeof j.info};
  problem p = {0};
  words rest;
  if (!read_options(&command, argc, argv, &j, &rest, &p))
    return print_problem(&p);
  if (rest.n) {
    fail(&p, EXIT_USAGE, "unexpected argument '%s'; see limber doctor --help",
         rest.items[0]);
    return print_problem(&p);
  }
  limber_status st = limber_runtime_describe(NULL, &j.info);
  if (st) {
    fail_status(&p, st, "doctor");
    return print_problem(&p);
  }
  (j.json ? print_json : print_text)(&j);
  return is_ok(&j) ? EXIT_OK : EXIT_BAD;
}
