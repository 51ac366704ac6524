// tools/json.c -- strings of a model as JSON.
#include "json.h"

#include <stdlib.h>
#include <string.h>

json_t *text_json(const char *text) {
  json_t *j = json_string(text);
  char *copy = j ? NULL : strdup(text);
  if (!copy) return j;
  for (char *c = copy; *c; c++)
    if ((unsigned char)*c > 127) *c = '?';
  j = json_string(copy);
  free(copy);
  return j;
}
