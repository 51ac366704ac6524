// tools/json.h -- strings of a model as JSON.
#ifndef LIMBER_TOOLS_JSON_H
#define LIMBER_TOOLS_JSON_H

#include <jansson.h>

// Creates a JSON string. JSON must be UTF-8, but the names in a model need not
// be: a text that is not gets a '?' for each byte beyond ASCII.
json_t *text_json(const char *text);

#endif
