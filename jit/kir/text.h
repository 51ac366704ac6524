// kir/text.h -- words that printer and parser share.
#ifndef LB_KIR_TEXT_H
#define LB_KIR_TEXT_H

#include "kir/kir.h"

extern const char *const lb_kimm_words[];  // by lb_kimm; "": has no word
const char *lb_kptr_word(unsigned flags);  // "ptr", "cptr", ... of a pointer

#endif
