#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/optim/piecewise_constant.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <sstream>

namespace tapeformer {
namespace {

/// Parses all of `text` as a number into `value`; false if that is impossible.
template <class T>
bool read_number(const std::string& text, T& value) {
  const char* const end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stopped == end;
}

/// A share such as 0.07 is rounded, and so is its product, which may be just above 7 of 100 steps.
Index first_step(double share, Index steps) {
  constexpr double kRoundings = 2 * std::numeric_limits<double>::epsilon();
  return static_cast<Index>(std::ceil(share * static_cast<double>(steps) * (1 - kRoundings)));
}

}  // namespace

PiecewiseConstant::PiecewiseConstant(const std::string& text, Index before) : before_(before) {
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    const std::size_t colon = part.find(':');
    Change change;
    const bool is_read = colon != std::string::npos && read_number(part.substr(0, colon), change.share) &&
                         read_number(part.substr(colon + 1), change.value);
    const double least = changes_.empty() ? 0 : std::nextafter(changes_.back().share, 1);
    if (!is_read || !(change.share >= least && change.share < 1) || change.value < 1)
      throw Error(format(
          "a schedule is written as shares of the steps, rising from 0 to below 1, and values above 0, "
          "such as 0.25:16,0.5:32; got {}",
          text));
    changes_.push_back(change);
  }
}

Index PiecewiseConstant::at(Index step, Index steps) const {
  Index value = before_;
  for (const Change& change : changes_)
    if (first_step(change.share, steps) <= step) value = change.value;
  return value;
}

std::vector<Index> PiecewiseConstant::changes(Index steps) const {
  std::vector<Index> result;
  for (const Change& change : changes_) result.push_back(first_step(change.share, steps));
  return result;
}

Index PiecewiseConstant::largest() const {
  Index value = changes_.empty() || changes_.front().share > 0 ? before_ : 0;
  for (const Change& change : changes_) value = std::max(value, change.value);
  return value;
}

}  // namespace tapeformer
