#pragma once

#include <tapeformer/examples/gradcheck/run.h>

#include <iosfwd>
#include <string>
#include <vector>

namespace tapeformer {

/// What became of one fault that was planted in one backward pass.
struct PlantedFault {
  std::string layer, mode;
  std::string fault;  ///< "dropped term"; "none" for the run without a fault
  std::string place;  ///< "linear, input 2"
  double error = 0;   ///< the largest relative error that the check saw
  std::string where;  ///< and in which gradient; or what was thrown
  bool noticed = false;
  bool threw = false;  ///< which no fault should make a check do

  /// Noticed, or without a fault and nothing to notice.
  bool as_it_should() const { return !threw && noticed == (fault != "none"); }
};

/// Checks the first derivatives of a layer once as they are, and once with each of these faults in its
/// recorded backward pass, every operation in turn:
///   dropped term           an input of an operation gets zeros for its gradient
///   scale off by 1e-4      it gets 1.0001 times its gradient
///   missing accumulation   a value that is used several times keeps the last of its contributions only
///   shifted mask           in masked attention keys and values get the gradients of their neighbours
/// Nothing is planted where the gradient is zero anyway.
std::vector<PlantedFault> plant_faults(const AttentionCheck& check, const GradcheckRunOptions& options);

/// Of every layer a causal self-attention and a cross-attention with padded keys, or the first there is.
std::vector<AttentionCheck> checks_for_faults(const std::vector<AttentionCheck>& checks);

void print_fault_header(std::ostream& out);
void print_fault(std::ostream& out, const PlantedFault& fault);
/// The last line; true if every fault was noticed, and nothing where there was none.
bool print_fault_summary(std::ostream& out, const std::vector<PlantedFault>& faults, double seconds);
nlohmann::ordered_json faults_json(const std::vector<PlantedFault>& faults);

}  // namespace tapeformer
