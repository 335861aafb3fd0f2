#pragma once

#include <tapeformer/autograd/config/names.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/tensor.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace tapeformer {

/// Processes that train together cannot continue: one has died or hangs, or they do not match.
class CommunicationError : public Error {
 public:
  using Error::Error;
};

/// A collective operation that has been started.
class Communication {
 public:
  class State;

  Communication() = default;  ///< an operation that is finished
  /// An operation that an engine has started and `state` watches.
  explicit Communication(std::shared_ptr<State> state) : state_(std::move(state)) {}

  /// Returns when the tensor holds the result. For a tensor on a GPU the host does not wait, but the kernels
  /// queued from now on do.
  /// Throws: CommunicationError
  void wait();

 private:
  std::shared_ptr<State> state_;
};

/// An engine's state of a collective operation.
class Communication::State {
 public:
  virtual ~State() = default;
  virtual void wait() = 0;
};

/// The operations that an engine must offer.
enum class Collective { all_reduce, reduce_scatter, all_gather, broadcast };
template <>
inline constexpr EnumNames kNames<Collective>{"collective",
                                              {"all_reduce", "reduce_scatter", "all_gather", "broadcast"}};

/// The duration of collective operations, and the part in which the caller waited.
struct CommunicationTime {
  /// Seconds in total, and seconds of waiting.
  double busy = 0, waited = 0;
};

/// The processes that train one model together, each with a rank in [0, size). All ranks must call the same
/// collective operations in the same order, with tensors of the same sizes and types. An operation works in
/// place and may continue while its caller computes: the tensor must not be used until wait() has returned.
///
/// Engines come from communicator_alone(), join_launch() (MPI, for CPU tensors) and nccl_communicator() (for
/// GPUs). Each sums in an order that depends only on the number of ranks, the size and, between GPUs, their
/// links, and all ranks get the same bits.
class Communicator {
 public:
  virtual ~Communicator() = default;
  /// This process's number, from 0.
  int rank() const { return rank_; }
  /// The number of processes.
  int size() const { return size_; }

  /// Every rank gets the sum of all ranks' x.
  /// Throws: DTypeError unless x is floating
  Communication all_reduce(const Tensor& x) { return checked({Collective::all_reduce, x}); }
  /// x is `size` shares of equal length: share r of rank r gets the sum of all ranks' share r. The other
  /// shares are undefined afterwards.
  /// Throws: DTypeError unless x is floating, ShapeError unless its elements divide by the number of ranks
  Communication reduce_scatter(const Tensor& x) { return checked({Collective::reduce_scatter, x}); }
  /// x is `size` shares of equal length: every rank gets each share r from rank r.
  /// Throws: ShapeError unless the elements divide by the number of ranks
  Communication all_gather(const Tensor& x) { return checked({Collective::all_gather, x}); }
  /// Every rank gets the x of rank 0.
  Communication broadcast(const Tensor& x) { return checked({Collective::broadcast, x}); }

  /// The sums of all ranks' numbers, on the host; waits.
  std::vector<double> sum(const std::vector<double>& numbers);
  /// Waits until all ranks have come to it.
  void barrier() { sum({0}); }
  /// The texts of all ranks by rank; waits.
  std::vector<std::string> gather(const std::string& text);

  /// The times so far; on GPUs, of the operations that the host knows to be done.
  virtual CommunicationTime time() const { return {}; }
  /// Names the training step that errors of this rank and the others report.
  virtual void set_step(Index) {}

  /// An operation for an engine to start.
  struct Request {
    Collective collective;  ///< which one
    Tensor x;               ///< the tensor that it works on, in place
  };

 protected:
  /// For engines: the number of this process, and the number of processes.
  Communicator(int rank, int size) : rank_(rank), size_(size) {}
  /// Called with a checked request of at least one element, and only where there is another rank.
  virtual Communication start(const Request& request) = 0;
  friend class NcclCommunicator;  // passes tensors of the CPU on to the engine between processes

 private:
  Communication checked(const Request& request);

  int rank_, size_;
};

/// The only process: every operation is over at once and changes nothing.
std::shared_ptr<Communicator> communicator_alone();

}  // namespace tapeformer
