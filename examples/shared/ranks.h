#pragma once

#include <tapeformer/autograd/communication/communicator.h>
#include <tapeformer/examples/shared/compute.h>

#include <nlohmann/json_fwd.hpp>

// The processes of one run, which a launcher has started with the same command.
namespace tapeformer {

/// Runs `body` on rank 0, and on the others when rank 0 is done: it writes files that they only read.
void first_rank_first(Communicator& ranks, const std::function<void()>& body);

/// Divides the machine between its ranks: the threads, where several ranks may use the same processors and
/// the number of threads is not given, or the GPUs. Returns a note for the user, or nothing.
std::string share_machine(Communicator& ranks, Compute& compute);

/// Refuses ranks that were started with another command, version or data: `state` is a checkpoint's
/// description of the run. Throws: CommunicationError naming rank and option
void require_same_training(Communicator& ranks, const nlohmann::ordered_json& state);

/// Each rank's share of waiting in `seconds`, from 0 to 1.
std::vector<double> waiting_shares(Communicator& ranks, double waited, double seconds);

/// "communication: 12.3 s, 80 % of it beside the computation; each process waited 2.1, 3.0 % of the time".
std::string communication_text(const CommunicationTime& time, const std::vector<double>& shares);

}  // namespace tapeformer
