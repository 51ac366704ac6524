// kir/text.h -- Keywords shared by printer and parser.
#ifndef LB_KIR_TEXT_H
#define LB_KIR_TEXT_H

#include "kir/kir.h"

extern const char *const lb_kimm_words[];  // by lb_kimm; "": no keyword
const char *lb_kptr_word(unsigned flags);  // "ptr", "cptr", ... of a pointer

#endif
