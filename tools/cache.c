// tools/cache.c -- `limber cache`: the kernels that are kept on disk.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "json.h"
#include "args.h"

typedef struct job {
  const char *action, *file;  // borrowed; file: of export, import and diff
  const char *store;          // NULL: as the environment says
  long long unused;           // days; -1: not given
  uint64_t bytes;             // UINT64_MAX: not given
  bool repair, json;
  limber_store *open;
} job;

// -- options ------------------------------------------------------------------

static const option_row rows[] = {
    {.name = "store",
     .argument = "PATH",
     .kind = OPTION_TEXT,
     .offset = offsetof(job, store),
     .help = "the folder, or an exported file to look at; default:\n"
             "LIMBER_CACHE_DIR, else ~/.cache/limber"},
    {.name = "bytes",
     .argument = "N",
     .kind = OPTION_BYTES,
     .offset = offsetof(job, bytes),
     .help = "prune: down to so many bytes, or K, M, G of them"},
    {.name = "unused",
     .argument = "DAYS",
     .kind = OPTION_NUMBER,
     .offset = offsetof(job, unused),
     .help = "prune: those not used for so many days",
     .low = 0,
     .high = 100000},
    {.name = "repair",
     .kind = OPTION_FLAG,
     .offset = offsetof(job, repair),
     .help = "verify: makes the file anew from what is sound"},
    {.name = "json",
     .kind = OPTION_FLAG,
     .offset = offsetof(job, json),
     .help = "prints JSON"},
};

static const command_info command = {
    .name = "cache",
    .usage = "ACTION [OPTION...]",
    .about =
        "Kernels that were compiled are kept on disk, for other processes and "
        "the\n"
        "next start. This shows and tends them.\n"
        "\n"
        "  path          prints where they are\n"
        "  info          how many there are, how large, and how often they "
        "were\n"
        "                used\n"
        "  ls            each kernel, the last used first\n"
        "  verify        reads all of them and compares checksums; exit code 1 "
        "if\n"
        "                something is broken\n"
        "  prune         drops the least recently used, and shrinks the file\n"
        "  clear         drops all\n"
        "  export FILE   writes them into one file, to be carried elsewhere\n"
        "  import FILE   adds those of such a file\n"
        "  diff OTHER    which kernels are here alone, there alone, or "
        "differ;\n"
        "                OTHER is a folder or a file. Exit code 1 if any do\n",
    .more = "",
    .options = rows,
    .n_options = sizeof rows / sizeof *rows,
};

static bool takes_file(const char *action) {
  return !strcmp(action, "export") || !strcmp(action, "import") ||
         !strcmp(action, "diff");
}

static bool read_words(const words *w, job *j, problem *p) {
  int n = 0;
  if (!w->n)
    return fail(p, EXIT_USAGE, "what shall be done? see limber cache --help");
  j->action = w->items[n++];
  if (takes_file(j->action)) {
    if (n == w->n)
      return fail(p, EXIT_USAGE, "limber cache %s: which file?", j->action);
    j->file = w->items[n++];
  }
  if (n == w->n) return true;
  return fail(p, EXIT_USAGE, "limber cache %s: '%s' is too much", j->action,
              w->items[n]);
}

// -- printing -----------------------------------------------------------------

static void print_root(json_t *root) {
  json_dumpf(root, stdout, JSON_INDENT(2));
  printf("\n");
  json_decref(root);
}

static const char *at(const job *j) { return limber_store_path(j->open); }

// One number with a name: as a line, or as JSON with the path.
static bool print_count(const job *j, const char *name, uint64_t n) {
  if (j->json) {
    print_root(
        json_pack("{s:o, s:I}", "path", text_json(at(j)), name, (json_int_t)n));
  } else {
    printf("%" PRIu64 " %s\n", n, name);
  }
  return true;
}

// -- entries in memory --------------------------------------------------------

typedef struct entry {  // texts owned
  char *key, *form, *spec, *assume, *target;
  int reusable;
  uint64_t bytes, checksum;
  int64_t created, used;
} entry;

typedef struct entries {
  entry *list;  // owned
  size_t n, cap;
  bool failed;
} entries;

static int keep(void *user, const limber_store_entry *e) {
  entries *all = user;
  if (all->n == all->cap) {
    size_t cap = all->cap ? 2 * all->cap : 256;
    entry *list = realloc(all->list, cap * sizeof *list);
    if (!list) return all->failed = true;
    all->list = list;
    all->cap = cap;
  }
  entry *x = &all->list[all->n++];
  *x = (entry){
      strdup(e->key),    strdup(e->form), strdup(e->spec), strdup(e->assume),
      strdup(e->target), e->reusable,     e->bytes,        e->checksum,
      e->created,        e->used};
  all->failed = !x->key || !x->form || !x->spec || !x->assume || !x->target;
  return all->failed;
}

static void entries_free(entries *all) {
  for (size_t i = 0; i < all->n; i++) {
    free(all->list[i].key);
    free(all->list[i].form);
    free(all->list[i].spec);
    free(all->list[i].assume);
    free(all->list[i].target);
  }
  free(all->list);
}

static bool load(limber_store *s, entries *all, problem *p) {
  limber_status st = limber_store_each(s, keep, all);
  if (st) return fail_status(p, st, "cache");
  return !all->failed || fail(p, EXIT_INTERNAL, "out of memory");
}

static int by_use(const void *a, const void *b) {
  const entry *x = a, *y = b;
  if (x->used != y->used) return x->used < y->used ? 1 : -1;
  return strcmp(x->key, y->key);
}

static int by_key(const void *a, const void *b) {
  return strcmp(((const entry *)a)->key, ((const entry *)b)->key);
}

static json_t *entry_json(const entry *e) {
  return json_pack("{s:s, s:o, s:o, s:o, s:o, s:b, s:I, s:I, s:I}", "key",
                   e->key, "form", text_json(e->form), "spec",
                   text_json(e->spec), "assume", text_json(e->assume), "target",
                   text_json(e->target), "reusable", e->reusable, "bytes",
                   (json_int_t)e->bytes, "created", (json_int_t)e->created,
                   "used", (json_int_t)e->used);
}

static void print_entry(const entry *e) {
  char when[32];
  time_t used = (time_t)e->used;
  struct tm tm;
  strftime(when, sizeof when, "%Y-%m-%d %H:%M", localtime_r(&used, &tm));
  printf("%s  %s  %7" PRIu64 "  %-11s  %s\n    %s\n", e->key, when, e->bytes,
         e->reusable ? "reusable" : "specialised", e->target, e->spec);
  if (*e->assume) printf("    %s\n", e->assume);
}

// -- actions ------------------------------------------------------------------

static bool do_path(job *j, problem *p) {
  (void)p;
  if (j->json)
    print_root(json_pack("{s:o}", "path", text_json(at(j))));
  else
    printf("%s\n", at(j));
  return true;
}

static bool do_ls(job *j, problem *p) {
  entries all = {0};
  bool good = load(j->open, &all, p);
  if (all.n) qsort(all.list, all.n, sizeof *all.list, by_use);
  if (good && j->json) {
    json_t *list = json_array();
    for (size_t i = 0; i < all.n; i++)
      json_array_append_new(list, entry_json(&all.list[i]));
    print_root(
        json_pack("{s:o, s:o}", "path", text_json(at(j)), "kernels", list));
  }
  for (size_t i = 0; good && !j->json && i < all.n; i++)
    print_entry(&all.list[i]);
  entries_free(&all);
  return good;
}

typedef struct group {  // of equal form, target and reusability
  const entry *first;
  uint64_t n, bytes;
} group;

static int by_group(const void *a, const void *b) {
  const entry *x = a, *y = b;
  int order = strcmp(x->target, y->target);
  if (!order) order = strcmp(x->form, y->form);
  return order ? order : x->reusable - y->reusable;
}

// Sorts the entries, and calls `fn` for each group of them.
static void each_group(entries *all, void (*fn)(void *user, const group *g),
                       void *user) {
  if (all->n) qsort(all->list, all->n, sizeof *all->list, by_group);
  for (size_t i = 0; i < all->n;) {
    group g = {.first = &all->list[i]};
    for (; i < all->n && !by_group(g.first, &all->list[i]); i++) {
      g.n++;
      g.bytes += all->list[i].bytes;
    }
    fn(user, &g);
  }
}

static void group_json(void *user, const group *g) {
  json_array_append_new(
      user,
      json_pack("{s:o, s:o, s:b, s:I, s:I}", "target",
                text_json(g->first->target), "form", text_json(g->first->form),
                "reusable", g->first->reusable, "kernels", (json_int_t)g->n,
                "bytes", (json_int_t)g->bytes));
}

static void group_text(void *user, const group *g) {
  (void)user;
  printf("  %6" PRIu64 " %10" PRIu64 "  %-10s %-11s  %s\n", g->n, g->bytes,
         g->first->form, g->first->reusable ? "reusable" : "specialised",
         g->first->target);
}

static json_t *totals_json(const limber_store_info *i) {
  return json_pack(
      "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f}", "hits",
      (json_int_t)i->hits, "hits_readonly", (json_int_t)i->hits_readonly,
      "misses", (json_int_t)i->misses, "waits", (json_int_t)i->waits,
      "insertions", (json_int_t)i->insertions, "evictions",
      (json_int_t)i->evictions, "corrupt", (json_int_t)i->ever_corrupt,
      "load_seconds", 1e-9 * (double)i->load_ns, "store_seconds",
      1e-9 * (double)i->store_ns);
}

static void totals_text(const limber_store_info *i) {
  printf("since it was made: %" PRIu64 " hits in %.3f s, %" PRIu64
         " in layers below, %" PRIu64 " misses, %" PRIu64
         " waits for others\n%" PRIu64 " insertions in %.3f s, %" PRIu64
         " evictions, %" PRIu64 " found corrupt\n",
         i->hits, 1e-9 * (double)i->load_ns, i->hits_readonly, i->misses,
         i->waits, i->insertions, 1e-9 * (double)i->store_ns, i->evictions,
         i->ever_corrupt);
}

static void print_info(const job *j, const limber_store_info *i, entries *all) {
  if (j->json) {
    json_t *groups = json_array();
    each_group(all, group_json, groups);
    print_root(json_pack(
        "{s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o}", "path",
        text_json(at(j)), "kernels", (json_int_t)i->entries, "bytes",
        (json_int_t)i->bytes, "capacity", (json_int_t)i->capacity, "corrupt",
        (json_int_t)i->corrupt, "rebuilds", (json_int_t)i->rebuilds, "salvaged",
        (json_int_t)i->salvaged, "total", totals_json(i), "groups", groups));
    return;
  }
  printf("%s\n%" PRIu64 " kernels, %" PRIu64 " of %" PRIu64 " bytes\n", at(j),
         i->entries, i->bytes, i->capacity);
  if (i->rebuilds)
    printf("rebuilt: %" PRIu64 " kept, %" PRIu64 " lost\n", i->salvaged,
           i->corrupt);
  totals_text(i);
  if (all->n) printf("\n  %6s %10s\n", "kernels", "bytes");
  each_group(all, group_text, NULL);
}

static bool do_info(job *j, problem *p) {
  entries all = {0};
  limber_store_info info = {.size = sizeof info};
  bool good = load(j->open, &all, p);
  limber_status st = good ? limber_store_stats(j->open, &info) : LIMBER_OK;
  if (st) good = fail_status(p, st, "cache");
  if (good) print_info(j, &info, &all);
  entries_free(&all);
  return good;
}

static bool do_verify(job *j, problem *p) {
  limber_store_check v = {.size = sizeof v};
  limber_status st = LIMBER_OK;
  if (j->repair) st = limber_store_repair(j->open);
  if (!st) st = limber_store_verify(j->open, &v);
  if (st) return fail_status(p, st, "cache");
  limber_store_info info = {.size = sizeof info};
  st = limber_store_stats(j->open, &info);
  bool rebuilt = !st && !j->repair && info.rebuilds;  // just by opening it
  bool valid = !v.corrupt && !*v.error && !rebuilt;
  if (j->json)
    print_root(
        json_pack("{s:o, s:b, s:I, s:I, s:I, s:o}", "path", text_json(at(j)),
                  "valid", valid, "kernels", (json_int_t)v.entries, "corrupt",
                  (json_int_t)v.corrupt, "lost", (json_int_t)info.corrupt,
                  "error", text_json(v.error)));
  else
    printf("%" PRIu64 " kernels are valid, %" PRIu64 " are corrupt\n",
           v.entries, v.corrupt);
  if (valid) return true;
  if (rebuilt)
    return fail(p, EXIT_BAD, "'%s' was corrupt and has been rebuilt", at(j));
  return fail(p, EXIT_BAD,
              "'%s' is corrupt%s%s; --repair keeps the valid kernels", at(j),
              *v.error ? ": " : "", v.error);
}

static bool prune(job *j, int64_t since, uint64_t bytes, problem *p) {
  uint64_t removed;
  limber_status st = limber_store_prune(j->open, since, bytes, &removed);
  if (st) return fail_status(p, st, "cache");
  return print_count(j, "removed", removed);
}

static bool do_prune(job *j, problem *p) {
  if (j->unused < 0 && j->bytes == UINT64_MAX)
    return fail(p, EXIT_USAGE, "limber cache prune: say --bytes or --unused");
  int64_t since =
      j->unused < 0 ? INT64_MIN : (int64_t)time(NULL) - j->unused * 86400;
  return prune(j, since, j->bytes, p);
}

static bool do_clear(job *j, problem *p) {
  return prune(j, INT64_MAX, UINT64_MAX, p);
}

static bool do_export(job *j, problem *p) {
  uint64_t written;
  limber_status st = limber_store_export(j->open, j->file, &written);
  if (st) return fail_status(p, st, "cache");
  return print_count(j, "written", written);
}

static bool do_import(job *j, problem *p) {
  limber_store_import_info in = {.size = sizeof in};
  limber_status st = limber_store_import(j->open, j->file, &in);
  if (st) return fail_status(p, st, "cache");
  if (j->json)
    print_root(json_pack("{s:o, s:I, s:I, s:I}", "path", text_json(at(j)),
                         "added", (json_int_t)in.added, "already_present",
                         (json_int_t)in.already_present, "corrupt",
                         (json_int_t)in.corrupt));
  else
    printf("%" PRIu64 " added, %" PRIu64 " were there, %" PRIu64
           " corrupt ones skipped\n",
           in.added, in.already_present, in.corrupt);
  return true;
}

// -- diff ---------------------------------------------------------------------

typedef struct difference {
  json_t *here, *there, *differ;  // lists, of what is printed as text at once
  bool json, any;
} difference;

static void tell(difference *d, json_t *list, char mark, const entry *e) {
  d->any = true;
  if (d->json)
    json_array_append_new(list, entry_json(e));
  else
    printf("%c %s  %s  %s  %s\n", mark, e->key, e->target, e->spec, e->assume);
}

static void compare(difference *d, entries *a, entries *b) {
  if (a->n) qsort(a->list, a->n, sizeof *a->list, by_key);
  if (b->n) qsort(b->list, b->n, sizeof *b->list, by_key);
  for (size_t i = 0, k = 0; i < a->n || k < b->n;) {
    int order = i == a->n   ? 1
                : k == b->n ? -1
                            : strcmp(a->list[i].key, b->list[k].key);
    if (order < 0) {
      tell(d, d->here, '<', &a->list[i]);
    } else if (order > 0) {
      tell(d, d->there, '>', &b->list[k]);
    } else if (a->list[i].checksum != b->list[k].checksum) {
      tell(d, d->differ, '!', &a->list[i]);
    }
    i += order <= 0;
    k += order >= 0;
  }
}

static bool do_diff(job *j, problem *p) {
  entries a = {0}, b = {0};
  limber_store *other = NULL;
  difference d = {json_array(), json_array(), json_array(), j->json, false};
  limber_status st = limber_store_open(j->file, &other);
  bool good = st ? fail_status(p, st, "cache") : load(j->open, &a, p);
  if (good) good = load(other, &b, p);
  if (good) compare(&d, &a, &b);
  if (good && j->json)
    print_root(json_pack("{s:o, s:o, s:O, s:O, s:O}", "path", text_json(at(j)),
                         "other", text_json(limber_store_path(other)), "here",
                         d.here, "there", d.there, "differ", d.differ));
  json_decref(d.here);
  json_decref(d.there);
  json_decref(d.differ);
  entries_free(&a);
  entries_free(&b);
  limber_store_close(other);
  if (good && d.any) p->exit = EXIT_BAD;  // said above
  return good && !d.any;
}

// -- the command --------------------------------------------------------------

static const struct {
  const char *name;
  bool (*run)(job *j, problem *p);
} actions[] = {
    {"path", do_path},     {"info", do_info},     {"ls", do_ls},
    {"verify", do_verify}, {"prune", do_prune},   {"clear", do_clear},
    {"export", do_export}, {"import", do_import}, {"diff", do_diff},
};

static bool act(job *j, problem *p) {
  for (size_t i = 0; i < sizeof actions / sizeof *actions; i++) {
    if (strcmp(j->action, actions[i].name)) continue;
    limber_status st = limber_store_open(j->store, &j->open);
    if (st) return fail_status(p, st, "cache");
    return actions[i].run(j, p);
  }
  return fail(p, EXIT_USAGE,
              "limber cache has no '%s'; see limber cache --help", j->action);
}

int command_cache(int argc, char **argv) {
  job j = {.unused = -1, .bytes = UINT64_MAX};
  problem p = {0};
  words rest;
  bool good = read_options(&command, argc, argv, &j, &rest, &p) &&
              read_words(&rest, &j, &p) && act(&j, &p);
  limber_store_close(j.open);
  return good ? EXIT_OK : complain(&p);
}
