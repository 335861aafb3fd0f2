#pragma once

#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/autograd/tensor.h>

#include <cstddef>
#include <initializer_list>
#include <string>
#include <utility>
#include <variant>

namespace tapeformer {

/// An argument of an operation for a message, such as "x=f32[2,3]", or several. The text is built only if
/// there is an error.
class Named {
 public:
  Named(const char* name, const Tensor& x) : name_(name), value_(&x) {}
  Named(const char* name, const Shape& x) : name_(name), value_(&x) {}
  Named(const char* name, FormatValue x) : name_(name), value_(x) {}
  template <std::size_t count>
  Named(const Named (&all)[count]) : value_(std::pair(&all[0], count)) {}

  std::string text() const;

 private:
  const char* name_ = "";
  std::variant<const Tensor*, const Shape*, FormatValue, std::pair<const Named*, std::size_t>> value_;
};

/// "[op] rule; got x=f32[2,3], axis=4; try remedy"
std::string refusal(const char* op, const char* rule, const std::string& got, const char* remedy);

/// Throws E with the text of a refusal() unless `holds`.
template <class E = ShapeError>
void require(bool holds, const char* op, const char* rule, std::initializer_list<Named> got,
             const char* remedy = nullptr) {
  if (!holds) throw E(refusal(op, rule, joined(got, ", ", &Named::text), remedy));
}

}  // namespace tapeformer
