// tools/json.h -- texts of a model as JSON.
#ifndef LIMBER_TOOLS_JSON_H
#define LIMBER_TOOLS_JSON_H

#include <jansson.h>

// A JSON string. Names of a model need not be UTF-8, which JSON must be: what
// is not has a '?' for each byte beyond ASCII.
json_t *text_json(const char *text);

#endif
