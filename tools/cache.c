// tools/cache.c -- `limber cache`: shows and manages the kernels on disk.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "json.h"
#include "args.h"

typedef struct cache_job {
  const char *action, *file;  // borrowed; file: for export, import and diff
  const char *store;          // NULL: as the environment says
  long long unused;           // days; -1: not given
  uint64_t bytes;             // UINT64_MAX: not given
  bool repair, json;
  limber_store *open;
} cache_job;

// -- options ------------------------------------------------------------------

static const option_row rows[] = {
    {.name = "store",
     .argument = "PATH",
     .kind = OPTION_TEXT,
     .offset = offsetof(cache_job, store),
     .help = "the directory, or an exported file to read; default:\n"
             "LIMBER_CACHE_DIR, else ~/.cache/limber"},
    {.name = "bytes",
     .argument = "N",
     .kind = OPTION_BYTES,
     .offset = offsetof(cache_job, bytes),
     .help = "prune: leave at most N bytes (suffix K, M or G)"},
    {.name = "unused",
     .argument = "DAYS",
     .kind = OPTION_NUMBER,
     .offset = offsetof(cache_job, unused),
     .help = "prune: remove kernels not used for that many days",
     .low = 0,
     .high = 100000},
    {.name = "repair",
     .kind = OPTION_FLAG,
     .offset = offsetof(cache_job, repair),
     .help = "verify: rebuild the file from its valid entries"},
    {.name = "json",
     .kind = OPTION_FLAG,
     .offset = offsetof(cache_job, json),
     .help = "print JSON"},
};

static const command_info command = {
    .name = "cache",
    .usage = "ACTION [OPTION...]",
    .about =
        "Shows and manages the compiled kernels that are stored on disk, for "
        "other\n"
        "processes and for the next start.\n"
        "\n"
        "  path          prints the directory\n"
        "  info          shows the number of kernels, their size and how "
        "often they\n"
        "                were used\n"
        "  ls            lists the kernels, most recently used first\n"
        "  verify        reads all kernels and compares checksums; exit code 1 "
        "if\n"
        "                one is corrupt\n"
        "  prune         removes the least recently used, and shrinks the "
        "file\n"
        "  clear         removes all kernels\n"
        "  export FILE   writes all kernels into one file\n"
        "  import FILE   adds the kernels of an exported file\n"
        "  diff OTHER    lists the kernels that are only here, only in OTHER, "
        "or\n"
        "                differ; OTHER is a directory or a file. Exit code 1 "
        "if\n"
        "                there are any\n",
    .more = "",
    .options = rows,
    .n_options = sizeof rows / sizeof *rows,
};

static bool takes_file(const char *action) {
  return !strcmp(action, "export") || !strcmp(action, "import") ||
         !strcmp(action, "diff");
}

static bool read_words(const words *w, cache_job *j, problem *p) {
  int n = 0;
  if (!w->n)
    return fail(p, EXIT_USAGE, "no action was given; see limber cache --help");
  j->action = w->items[n++];
  if (takes_file(j->action)) {
    if (n == w->n)
      return fail(p, EXIT_USAGE, "limber cache %s: no file was given",
                  j->action);
    j->file = w->items[n++];
  }
  if (n == w->n) return true;
  return fail(p, EXIT_USAGE, "limber cache %s: unexpected argument '%s'",
              j->action, w->items[n]);
}

// -- printing -----------------------------------------------------------------

static void print_root(json_t *root) {
  json_dumpf(root, stdout, JSON_INDENT(2));
  printf("\n");
  json_decref(root);
}

static const char *at(const cache_job *j) { return limber_store_path(j->open); }

// Prints a named number as a line, or as JSON together with the path.
static bool print_count(const cache_job *j, const char *name, uint64_t n) {
  if (j->json) {
    print_root(
        json_pack("{s:o, s:I}", "path", text_json(at(j)), name, (json_int_t)n));
  } else {
    printf("%" PRIu64 " %s\n", n, name);
  }
  return true;
}

// -- entries in memory --------------------------------------------------------

typedef struct stored_entry {  // owns its strings
  char *key, *form, *spec, *assume, *target;
  int reusable;
  uint64_t bytes, checksum;
  int64_t created, used;
} stored_entry;

typedef struct entries {
  stored_entry *list;  // owned
  size_t n, cap;
  bool failed;
} entries;

static int add_entry(void *user, const limber_store_entry *e) {
  entries *all = user;
  if (all->n == all->cap) {
    size_t cap = all->cap ? 2 * all->cap : 256;
    stored_entry *list = realloc(all->list, cap * sizeof *list);
    if (!list) return all->failed = true;
    all->list = list;
    all->cap = cap;
  }
  stored_entry *x = &all->list[all->n++];
  *x = (stored_entry){
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
  limber_status st = limber_store_each(s, add_entry, all);
  if (st) return fail_status(p, st, "cache");
  return !all->failed || fail(p, EXIT_INTERNAL, "out of memory");
}

static int by_use(const void *a, const void *b) {
  const stored_entry *x = a, *y = b;
  if (x->used != y->used) return x->used < y->used ? 1 : -1;
  return strcmp(x->key, y->key);
}

static int by_key(const void *a, const void *b) {
  return strcmp(((const stored_entry *)a)->key, ((const stored_entry *)b)->key);
}

static json_t *entry_json(const stored_entry *e) {
  return json_pack("{s:s, s:o, s:o, s:o, s:o, s:b, s:I, s:I, s:I}", "key",
                   e->key, "form", text_json(e->form), "spec",
                   text_json(e->spec), "assume", text_json(e->assume), "target",
                   text_json(e->target), "reusable", e->reusable, "bytes",
                   (json_int_t)e->bytes, "created", (json_int_t)e->created,
                   "used", (json_int_t)e->used);
}

static void print_entry(const stored_entry *e) {
  char when[32];
  time_t used = (time_t)e->used;
  struct tm tm;
  strftime(when, sizeof when, "%Y-%m-%d %H:%M", localtime_r(&used, &tm));
  printf("%s  %s  %7" PRIu64 "  %-11s  %s\n    %s\n", e->key, when, e->bytes,
         e->reusable ? "reusable" : "specialised", e->target, e->spec);
  if (*e->assume) printf("    %s\n", e->assume);
}

// -- actions ------------------------------------------------------------------

static bool do_path(cache_job *j, problem *p) {
  (void)p;
  if (j->json)
    print_root(json_pack("{s:o}", "path", text_json(at(j))));
  else
    printf("%s\n", at(j));
  return true;
}

static bool do_ls(cache_job *j, problem *p) {
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

typedef struct group {  // entries of equal form, target and reusability
  const stored_entry *first;
  uint64_t n, bytes;
} group;

static int by_group(const void *a, const void *b) {
  const stored_entry *x = a, *y = b;
  int order = strcmp(x->target, y->target);
  if (!order) order = strcmp(x->form, y->form);
  return order ? order : x->reusable - y->reusable;
}

// Sorts the entries by group, and calls `fn` for each group.
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
  printf(
      "since it was created: %" PRIu64 " hits in %.3f s, %" PRIu64
      " in read-only layers, %" PRIu64 " misses, %" PRIu64
      " waits for other processes\n%" PRIu64 " insertions in %.3f s, %" PRIu64
      " evictions, %" PRIu64 " found corrupt\n",
      i->hits, 1e-9 * (double)i->load_ns, i->hits_readonly, i->misses, i->waits,
      i->insertions, 1e-9 * (double)i->store_ns, i->evictions, i->ever_corrupt);
}

static void print_info(const cache_job *j, const limber_store_info *i,
                       entries *all) {
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

static bool do_info(cache_job *j, problem *p) {
  entries all = {0};
  limber_store_info info = {.size = sizeof info};
  bool good = load(j->open, &all, p);
  limber_status st = good ? limber_store_stats(j->open, &info) : LIMBER_OK;
  if (st) good = fail_status(p, st, "cache");
  if (good) print_info(j, &info, &all);
  entries_free(&all);
  return good;
}

static bool do_verify(cache_job *j, problem *p) {
  limber_store_check v = {.size = sizeof v};
  limber_status st = LIMBER_OK;
  if (j->repair) st = limber_store_repair(j->open);
  if (!st) st = limber_store_verify(j->open, &v);
  if (st) return fail_status(p, st, "cache");
  limber_store_info info = {.size = sizeof info};
  st = limber_store_stats(j->open, &info);
  bool rebuilt = !st && !j->repair && info.rebuilds;  // by opening it
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

static bool prune(cache_job *j, int64_t since, uint64_t bytes, problem *p) {
  uint64_t removed;
  limber_status st = limber_store_prune(j->open, since, bytes, &removed);
  if (st) return fail_status(p, st, "cache");
  return print_count(j, "removed", removed);
}

static bool do_prune(cache_job *j, problem *p) {
  if (j->unused < 0 && j->bytes == UINT64_MAX)
    return fail(p, EXIT_USAGE,
                "limber cache prune: give --bytes, --unused or both");
  int64_t since =
      j->unused < 0 ? INT64_MIN : (int64_t)time(NULL) - j->unused * 86400;
  return prune(j, since, j->bytes, p);
}

static bool do_clear(cache_job *j, problem *p) {
  return prune(j, INT64_MAX, UINT64_MAX, p);
}

static bool do_export(cache_job *j, problem *p) {
  uint64_t written;
  limber_status st = limber_store_export(j->open, j->file, &written);
  if (st) return fail_status(p, st, "cache");
  return print_count(j, "written", written);
}

static bool do_import(cache_job *j, problem *p) {
  limber_store_import_info in = {.size = sizeof in};
  limber_status st = limber_store_import(j->open, j->file, &in);
  if (st) return fail_status(p, st, "cache");
  if (j->json)
    print_root(json_pack("{s:o, s:I, s:I, s:I}", "path", text_json(at(j)),
                         "added", (json_int_t)in.added, "already_present",
                         (json_int_t)in.already_present, "corrupt",
                         (json_int_t)in.corrupt));
  else
    printf("%" PRIu64 " added, %" PRIu64 " already present, %" PRIu64
           " corrupt and skipped\n",
           in.added, in.already_present, in.corrupt);
  return true;
}

// -- diff ---------------------------------------------------------------------

typedef struct difference {
  json_t *here, *there, *differ;  // lists for JSON; text is printed directly
  bool json, any;
} difference;

static void report(difference *d, json_t *list, char mark,
                   const stored_entry *e) {
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
      report(d, d->here, '<', &a->list[i]);
    } else if (order > 0) {
      report(d, d->there, '>', &b->list[k]);
    } else if (a->list[i].checksum != b->list[k].checksum) {
      report(d, d->differ, '!', &a->list[i]);
    }
    i += order <= 0;
    k += order >= 0;
  }
}

static bool do_diff(cache_job *j, problem *p) {
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
  if (good && d.any) p->exit = EXIT_BAD;  // the differences were printed
  return good && !d.any;
}

// -- the command --------------------------------------------------------------

static const struct {
  const char *name;
  bool (*run)(cache_job *j, problem *p);
} actions[] = {
    {"path", do_path},     {"info", do_info},     {"ls", do_ls},
    {"verify", do_verify}, {"prune", do_prune},   {"clear", do_clear},
    {"export", do_export}, {"import", do_import}, {"diff", do_diff},
};

static bool run_action(cache_job *j, problem *p) {
  for (size_t i = 0; i < sizeof actions / sizeof *actions; i++) {
    if (strcmp(j->action, actions[i].name)) continue;
    limber_status st = limber_store_open(j->store, &j->open);
    if (st) return fail_status(p, st, "cache");
    return actions[i].run(j, p);
  }
  return fail(p, EXIT_USAGE, "unknown action '%s'; see limber cache --help",
              j->action);
}

int command_cache(int argc, char **argv) {
  cache_job j = {.unused = -1, .bytes = UINT64_MAX};
  problem p = {0};
  words rest;
  bool good = read_options(&command, argc, argv, &j, &rest, &p) &&
              read_words(&rest, &j, &p) && run_action(&j, &p);
  limber_store_close(j.open);
  return good ? EXIT_OK : print_problem(&p);
}
