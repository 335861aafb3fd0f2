#pragma once

#include <tapeformer/autograd/error.h>

#include <algorithm>
#include <iterator>
#include <string>

namespace tapeformer {

/// "none, head or element".
template <class Names>
std::string alternatives(const Names& names) {
  std::string text;
  std::size_t left = std::size(names);
  for (const auto& name : names)
    text.append(text.empty() ? "" : left == 1 ? " or " : ", ").append(name), --left;
  return text;
}

/// The value of an enumeration whose values from 0 on have these names.
/// Throws: Error "WHAT must be none, head or element; got NAME"
template <class Kind, std::size_t count>
Kind kind_named(const std::string& what, const std::string& name, const char* const (&names)[count]) {
  const auto found = std::find(std::begin(names), std::end(names), name);
  if (found == std::end(names)) throw Error(what + " must be " + alternatives(names) + "; got " + name);
  return static_cast<Kind>(found - std::begin(names));
}

}  // namespace tapeformer
