#include <tapeformer/autograd/gradcheck/differences.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace tapeformer {
namespace {

constexpr int kCoarsest = -8, kFinest = 9;  // halvings of 2h

/// NaN is the largest error.
double error_of(const ComparedElement& element) {
  const double error = std::fabs(element.analytic - element.numeric);
  return std::isnan(error) ? std::numeric_limits<double>::infinity() : error;
}

double largest_numeric(const std::vector<ComparedElement>& elements) {
  double largest = 0;
  for (const ComparedElement& element : elements)
    if (std::isfinite(element.numeric)) largest = std::max(largest, std::fabs(element.numeric));
  return largest;
}

/// The element with the largest error among those that are not extrapolated, or the end.
std::vector<ComparedElement>::iterator worst_of(std::vector<ComparedElement>& elements) {
  auto worst = elements.end();
  for (auto at = elements.begin(); at != elements.end(); ++at)
    if (!at->is_extrapolated && (worst == elements.end() || error_of(*at) > error_of(*worst))) worst = at;
  return worst;
}

}  // namespace

const std::vector<double>& CentralDifferences::quotient(int halvings) {
  const auto [place, is_new] = quotients_.try_emplace(halvings);
  if (!is_new) return place->second;
  const double h = std::ldexp(2 * step_, -halvings);
  std::vector<double> slopes = f_(h);
  const std::vector<double> below = f_(-h);
  for (std::size_t i = 0; i < slopes.size(); ++i) slopes[i] = (slopes[i] - below[i]) / (2 * h);
  return place->second = std::move(slopes);
}

std::vector<double> CentralDifferences::usual() {
  std::vector<double> slopes = quotient(1);
  if (!four_point_) return slopes;
  const std::vector<double>& coarser = quotient(0);
  for (std::size_t i = 0; i < slopes.size(); ++i) slopes[i] += (slopes[i] - coarser[i]) / 3;
  return slopes;
}

NumericDerivative CentralDifferences::extrapolated(std::size_t i, double wanted) {
  const NumericDerivative fine = extrapolated_from(0, i, wanted);
  if (fine.uncertainty <= wanted) return fine;
  const NumericDerivative wide = extrapolated_from(kCoarsest, i, wanted);
  return std::fabs(wide.value - fine.value) <= 4 * fine.uncertainty ? wide : fine;
}

NumericDerivative CentralDifferences::extrapolated_from(int coarsest, std::size_t i, double wanted) {
  std::vector<double> row, best;  // the last row of T, and the best entry of each
  for (int halvings = coarsest; halvings <= kFinest; ++halvings) {
    const double slope = quotient(halvings)[i];
    if (!std::isfinite(slope)) {  // a step beyond the domain of f
      row.clear(), best.clear();
      continue;
    }
    std::vector<double> next{slope};
    double least = std::numeric_limits<double>::infinity(), power = 1;
    best.push_back(slope);
    for (const double before : row) {
      power *= 4;
      const double entry = next.back() + (next.back() - before) / (power - 1);
      const double off = std::max(std::fabs(entry - next.back()), std::fabs(entry - before));
      next.push_back(entry);
      if (off < least) least = off, best.back() = entry;
    }
    row = std::move(next);
  }
  const std::size_t rows = best.size();
  std::vector<double> off(rows, 0);
  for (std::size_t k = rows < 3 ? 0 : rows - 2; k > 0; --k) {
    // Rounding errors at least halve from row to row upward, even where rows agree by chance.
    off[k] = std::max({std::fabs(best[k] - best[k - 1]), std::fabs(best[k] - best[k + 1]), off[k + 1] / 2});
  }
  NumericDerivative result{rows == 0 ? std::nan("") : best.back(), std::numeric_limits<double>::infinity()};
  for (std::size_t k = 1; k + 1 < rows; ++k) {
    // Where f has a narrow bump, coarse steps may agree that there is none.
    const bool finds_a_bump = off[k] <= wanted && std::fabs(best[k] - result.value) > 2 * wanted;
    if (off[k] < result.uncertainty || finds_a_bump) result = {best[k], off[k]};
  }
  return result;
}

GradcheckInput compare_elements(
    const std::string& name, std::vector<ComparedElement> elements, double scale,
    const GradcheckOptions& options,
    const std::function<NumericDerivative(std::size_t place, double wanted)>& extrapolated) {
  GradcheckInput result;
  result.name = name;
  for (auto worst = worst_of(elements); worst != elements.end(); worst = worst_of(elements)) {
    const double largest = scale > 0 ? scale : largest_numeric(elements);
    const double allowed = std::max(options.tolerance * largest, options.absolute), wanted = allowed / 10;
    if (error_of(*worst) <= wanted) break;
    const auto place = static_cast<std::size_t>(worst - elements.begin());
    const NumericDerivative again = extrapolated(place, wanted);
    worst->is_extrapolated = true;
    // An element that passed at the usual step does not fail by a value that is not known more exactly.
    if (again.uncertainty <= allowed || error_of(*worst) > allowed) worst->numeric = again.value;
    const double error = error_of(*worst);
    if (error <= allowed) continue;
    const double settled = std::max(allowed, std::fabs(again.value) / 10);
    if (std::isfinite(error) && again.uncertainty > std::min(settled, error / 10)) result.fault = kTooCoarse;
    break;
  }
  for (const ComparedElement& element : elements)
    result.compare(element.element, element.analytic, element.numeric);
  if (scale > 0) result.scale = scale;
  result.judge(options);
  return result;
}

}  // namespace tapeformer
