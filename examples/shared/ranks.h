#pragma once

#include <tapeformer/autograd/communication/communicator.h>
#include <tapeformer/examples/shared/compute.h>

#include <nlohmann/json_fwd.hpp>

// The processes of one run, which a launcher has started with the same command.
namespace tapeformer {

/// Runs `body` on rank 0, and then on the others: rank 0 writes files that they only read.
void first_rank_first(Communicator& ranks, const std::function<void()>& body);

/// Divides the machine between its ranks: the threads, where several ranks may use the same processors and
/// the number of threads is not given, or the GPUs. Returns a note for the user, or nothing.
std::string share_machine(Communicator& ranks, Compute& compute);

/// Refuses ranks that were started with another command, version or data; `state` describes the run as in a
/// checkpoint. Throws: CommunicationError naming rank and option
void require_same_training(Communicator& ranks, const nlohmann::ordered_json& state);

/// For each rank, the share of `seconds` that it has waited for others, from 0 to 1.
std::vector<double> waiting_shares(Communicator& ranks, double waited, double seconds);

/// "communication: 12.30 s, 80 % of it during the computation; the processes waited for 2.1, 3.0 % of ...".
std::string communication_text(const CommunicationTime& time, const std::vector<double>& shares);

}  // namespace tapeformer
