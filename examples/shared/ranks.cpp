#include <tapeformer/autograd/communication/mpi.h>
#include <tapeformer/autograd/config/json.h>
#include <tapeformer/autograd/device.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/autograd/system/threads.h>
#include <tapeformer/examples/shared/program.h>
#include <tapeformer/examples/shared/ranks.h>

#include <omp.h>
#include <sched.h>

#include <algorithm>
#include <cstdlib>

namespace tapeformer {
namespace {

using Json = nlohmann::ordered_json;

/// A 1 or 0 for each processor of the machine that this process may use.
std::string allowed_processors() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  sched_getaffinity(0, sizeof allowed, &allowed);
  std::string text;
  for (int i = 0; i < CPU_SETSIZE; ++i) text += CPU_ISSET(i, &allowed) ? '1' : '0';
  return text.substr(0, text.rfind('1') + 1);
}

}  // namespace

void first_rank_first(Communicator& ranks, const std::function<void()>& body) {
  if (ranks.rank() > 0) ranks.barrier();
  body();
  if (ranks.rank() == 0) ranks.barrier();
}

std::string share_machine(Communicator& ranks, Compute& compute) {
  if (ranks.size() == 1) return {};
  const std::string host = host_name(), processors = allowed_processors();
  // All ranks gather both, also where only some have a GPU, which require_same_training() refuses later.
  const std::vector<std::string> hosts = ranks.gather(host), places = ranks.gather(host + " " + processors);
  if (compute.device.is_cuda()) {
    // A launcher may show each rank only its own GPU. NCCL refuses two ranks on one GPU.
    const auto on_this_machine = std::count(hosts.begin(), hosts.begin() + ranks.rank(), host);
    compute.device.index = static_cast<int>(on_this_machine % std::max(1, cuda::device_count()));
    return {};
  }
  const Index together = std::count(places.begin(), places.end(), host + " " + processors);
  const int quota = processor_quota();
  const Index allowed = std::count(processors.begin(), processors.end(), '1');
  const Index usable = quota > 0 ? std::min<Index>(quota, allowed) : allowed;
  if (compute.threads == 0 && std::getenv("OMP_NUM_THREADS") == nullptr && together > 1)
    omp_set_num_threads(static_cast<int>(std::max<Index>(1, usable / together)));
  if (together <= usable) return {};
  return format("note: {} share {} of {}, and wait for each other",
                number_of(together, "process", "processes"), number_of(usable, "processor"), host);
}

void require_same_training(Communicator& ranks, const Json& state) {
  if (ranks.size() == 1) return;
  Json own = state;
  own["version"] = kVersion;
  std::vector<Json> all;
  for (const std::string& text : ranks.gather(own.dump())) all.push_back(parse_json(text).flatten());
  const auto text_in = [](const Json& one, const std::string& name) {
    return one.contains(name) ? one.at(name).dump() : "none";
  };
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    Json either = all[0];
    either.update(all[rank]);
    for (const auto& entry : either.items()) {
      const std::string first = text_in(all[0], entry.key()), other = text_in(all[rank], entry.key());
      if (first == other) continue;
      throw CommunicationError(format(
          "rank {} has a different {} than rank 0: {} instead of {}; all processes need the same command, "
          "version and data, and see the same run folder",
          rank, entry.key().substr(1), other, first));
    }
  }
}

std::vector<double> waiting_shares(Communicator& ranks, double waited, double seconds) {
  std::vector<double> shares(static_cast<std::size_t>(ranks.size()));
  shares[static_cast<std::size_t>(ranks.rank())] = waited / std::max(seconds, 1e-9);
  return ranks.sum(shares);
}

std::string communication_text(const CommunicationTime& time, const std::vector<double>& shares) {
  const double hidden = time.busy > 0 ? std::max(0.0, 1 - time.waited / time.busy) : 0;
  return format(
      "communication: {:.2f} s, {:.0f} % of it during the computation; the processes waited for {} % of the "
      "time",
      time.busy, 100 * hidden,
      joined(shares, ", ", [](double share) { return format("{:.1f}", 100 * share); }));
}

}  // namespace tapeformer
