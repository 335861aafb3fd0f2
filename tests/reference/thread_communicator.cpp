#include <tapeformer/tests/reference/thread_communicator.h>

#include <condition_variable>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace tapeformer::reference {
namespace {

/// Where the ranks meet.
class Meeting {
 public:
  explicit Meeting(int size) : tensors(static_cast<std::size_t>(size)), size_(size) {}

  /// Returns when all ranks have called it. Throws: CommunicationError if one has failed
  void wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    const long round = round_;
    if (++here_ == size_) {
      here_ = 0;
      ++round_;
      all_here_.notify_all();
    }
    all_here_.wait(lock, [&] { return round_ != round || failure; });
    if (round_ == round) throw CommunicationError("another rank has failed");
  }
  void fail(std::exception_ptr error) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!failure) failure = std::move(error);
    all_here_.notify_all();
  }

  std::vector<Tensor> tensors;  // of each rank
  std::exception_ptr failure;

 private:
  std::mutex mutex_;
  std::condition_variable all_here_;
  int size_, here_ = 0;
  long round_ = 0;
};

class ThreadCommunicator : public Communicator {
 public:
  ThreadCommunicator(int rank, int size, Meeting& meeting) : Communicator(rank, size), meeting_(meeting) {}

 protected:
  Communication start(const Request& request) override {
    class Later : public Communication::State {
     public:
      Later(Meeting& meeting, const Request& request, int rank)
          : meeting_(meeting), request_(request), rank_(rank) {}
      void wait() override { run(meeting_, request_, rank_); }

     private:
      Meeting& meeting_;
      Request request_;
      int rank_;
    };
    return Communication(std::make_shared<Later>(meeting_, request, rank()));
  }

 private:
  static void run(Meeting& meeting, const Request& request, int rank) {
    const auto size = meeting.tensors.size();
    meeting.tensors[static_cast<std::size_t>(rank)] = request.x;
    meeting.wait();
    const Tensor result = request.x.clone();
    const Index count = result.elements();
    const auto share = static_cast<std::size_t>(request.x.bytes()) / size;
    const auto bytes = [](const Tensor& x) { return static_cast<char*>(x.raw()); };
    switch (request.collective) {
      case Collective::broadcast: result.copy_from(meeting.tensors[0]); break;
      case Collective::all_gather:
        for (std::size_t from = 0; from < size; ++from)
          std::memcpy(bytes(result) + from * share, bytes(meeting.tensors[from]) + from * share, share);
        break;
      case Collective::all_reduce:
      case Collective::reduce_scatter:
        std::vector<double> sums(static_cast<std::size_t>(count));
        for (const Tensor& x : meeting.tensors)
          for (Index i = 0; i < count; ++i) sums[static_cast<std::size_t>(i)] += x.at(i);
        result.copy_from(Tensor::from(sums, result.shape()).to(result.dtype()));
        if (request.collective == Collective::reduce_scatter) {  // so that reading another's share shows
          for (std::size_t other = 0; other < size; ++other)
            if (other != static_cast<std::size_t>(rank))
              std::memset(bytes(result) + other * share, 0xFF, share);
        }
    }
    meeting.wait();  // all have read
    request.x.copy_from(result);
  }

  Meeting& meeting_;
};

}  // namespace

void as_ranks(int size, const std::function<void(Communicator&)>& body) {
  Meeting meeting(size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        ThreadCommunicator communicator(rank, size, meeting);
        body(communicator);
      } catch (...) {
        meeting.fail(std::current_exception());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (meeting.failure) std::rethrow_exception(meeting.failure);
}

}  // namespace tapeformer::reference
