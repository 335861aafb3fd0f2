#include <tapeformer/data/tokenizers/unicode_classes.h>
#include <utf8proc.h>

namespace tapeformer {

CharacterClass character_class(char32_t code_point) {
  if ((code_point >= 0x09 && code_point <= 0x0d) || code_point == 0x85) return CharacterClass::space;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code_point))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO: return CharacterClass::letter;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO: return CharacterClass::number;
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP: return CharacterClass::space;
    default: return CharacterClass::other;
  }
}

}  // namespace tapeformer
