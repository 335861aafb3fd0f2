#pragma once

#include <tapeformer/examples/gradcheck/run.h>

#include <iosfwd>
#include <string>
#include <vector>

namespace tapeformer {

/// The outcome of one fault planted in one backward pass.
struct PlantedFault {
  std::string layer, mode;
  std::string fault;  ///< "dropped term"; "none" for the run without a fault
  std::string place;  ///< "linear, input 2"
  double error = 0;   ///< the largest relative error found
  std::string where;  ///< the gradient with that error, or the exception's message
  bool noticed = false;
  bool threw = false;  ///< whether there was an exception, which no fault may cause

  /// True if the fault was noticed, or if there was none and nothing was reported; false after an exception.
  bool as_it_should() const { return !threw && noticed == (fault != "none"); }
};

/// Checks the first derivatives of a layer without a fault, and then with each of these faults planted in the
/// backward pass of each operation in turn:
///   dropped term           the gradient of one input is zero
///   scale off by 1e-4      the gradient of one input is multiplied by 1.0001
///   missing accumulation   a value used several times keeps only its last contribution
///   shifted mask           in masked attention, keys and values get their neighbours' gradients
/// and with these where the gradient is largest:
///   lost gradient          an input gets none at all
///   off when recorded      in a recorded pass it is multiplied by 1.0001: forward mode must notice
///   other bits again       in every further pass its last bits differ: a repeated pass must notice
/// No fault is planted where the gradient is zero.
std::vector<PlantedFault> plant_faults(const AttentionCheck& check, const GradcheckRunOptions& options);

/// The modes "self causal" and "cross key padding" of every layer, or its first mode if it has neither.
std::vector<AttentionCheck> checks_for_faults(const std::vector<AttentionCheck>& checks);

void print_fault_header(std::ostream& out);
void print_fault(std::ostream& out, const PlantedFault& fault);
/// Prints the last line. True if every fault was noticed, and nothing was reported without one.
bool print_fault_summary(std::ostream& out, const std::vector<PlantedFault>& faults, double seconds);
nlohmann::ordered_json faults_json(const std::vector<PlantedFault>& faults);

}  // namespace tapeformer
