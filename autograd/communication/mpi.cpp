#include <tapeformer/autograd/communication/mpi.h>
#include <tapeformer/autograd/communication/mpi_collectives.h>
#include <tapeformer/autograd/format.h>

#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

namespace tapeformer {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kQuestion = 1, kAnswer = 2;  // tags
constexpr std::chrono::seconds kMostForAnswers(2);
constexpr std::chrono::milliseconds kIdle(5);  // between checks for other ranks' questions
// While an operation runs: checks without a pause, for small ones, and the pause between later ones. The
// thread sleeps rather than yields, because it may share a processor with the computation: after a sleep a
// thread is scheduled first, after a yield last.
constexpr int kQuickLooks = 20;
constexpr std::chrono::microseconds kPause(50);
constexpr std::uint64_t kLeastSharedMemory =
    8 << 20;  // of /dev/shm for each rank of a machine: Open MPI's 4 MiB, twice

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// Makes this thread run as soon as it wakes, ahead of computing threads, and wake on time. Without it a step
/// of ten buckets took 68 ms, with it 33.
void ask_for_short_slices() {
  prctl(PR_SET_TIMERSLACK, 1000);  // nanoseconds
  // Linux 6.12 and newer preempt for the thread with the shorter slice; older ones refuse this, and preempt
  // for any that has slept.
  struct {
    std::uint32_t size = 48, policy = SCHED_OTHER;
    std::uint64_t flags = 0;
    std::int32_t nice = getpriority(PRIO_PROCESS, 0);
    std::uint32_t priority = 0;
    std::uint64_t runtime = 100'000, deadline = 0, period = 0;  // nanoseconds
  } attributes;
  static_assert(sizeof attributes == 48, "the kernel's struct sched_attr");
  syscall(SYS_sched_setattr, 0, &attributes, 0);
}

/// The progress of a rank, sent to another one that waits for it.
struct Place {
  std::int64_t operation = 0;  ///< collective operations begun so far
  std::int64_t step = 0;
};

class MpiCommunicator : public Communicator {
 public:
  explicit MpiCommunicator(const LaunchedRank& launched) : Communicator(launched.rank, launched.size) {
    sigset_t all, before;  // signals must go to the threads of the program
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    std::unique_lock<std::mutex> lock(mutex_);
    thread_ = std::thread([this] { serve(); });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    changed_.wait(lock, [this] { return started_ || error_; });
    if (error_ == nullptr) return;
    lock.unlock();
    thread_.join();
    std::rethrow_exception(error_);
  }

  CommunicationTime time() const override {
    const std::lock_guard<std::mutex> lock(mutex_);
    return time_;
  }
  void set_step(Index step) override { step_ = step; }
  void limit(double seconds) { limit_ = seconds; }
  std::string name(int rank) const {
    return format("rank {} on {}", rank, hosts_[static_cast<std::size_t>(rank)]);
  }

  void leave() {
    order(leaves_);
    thread_.join();
  }
  void abort(int code) {
    abort_code_ = code;
    order(aborts_);
    std::this_thread::sleep_for(kMostForAnswers);
    _exit(code);  // in case MPI has not ended the process
  }

 protected:
  Communication start(const Request& request) override {
    if (request.x.device().is_cuda()) {
      throw DeviceError(format("[{}] MPI sends CPU tensors only; got x={}; try nccl_communicator()",
                               name_of(request.collective), request.x.describe()));
    }
    if (request.x.elements() > std::numeric_limits<int>::max()) {
      throw ShapeError(format("[{}] MPI sends at most 2^31 - 1 elements at once; got x={}; try several parts",
                              name_of(request.collective), request.x.describe()));
    }
    auto operation = std::make_shared<Operation>(*this, request);
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      queue_.push_back(operation);
    }
    changed_.notify_all();
    return Communication(operation);
  }

 private:
  struct Operation : Communication::State {
    Operation(MpiCommunicator& communicator, const Request& asked) : ranks(communicator), request(asked) {}
    void wait() override { ranks.wait(*this); }

    MpiCommunicator& ranks;
    const Request request;
    bool over = false;         // guarded by the communicator's mutex, as what follows
    std::exception_ptr error;  // why it has failed
  };

  void order(std::atomic<bool>& what) {
    what = true;
    changed_.notify_all();
  }

  void wait(const Operation& operation) {
    std::unique_lock<std::mutex> lock(mutex_);
    const Clock::time_point begin = Clock::now();
    changed_.wait(lock, [&] { return operation.over; });
    time_.waited += seconds_since(begin);
    if (operation.error) std::rethrow_exception(operation.error);
  }

  /// The loop of the thread that calls MPI.
  void serve() {
    try {
      begin();
    } catch (...) {
      const std::lock_guard<std::mutex> lock(mutex_);
      error_ = std::current_exception();
      changed_.notify_all();
      return;
    }
    while (true) {
      std::shared_ptr<Operation> next;
      {
        std::unique_lock<std::mutex> lock(mutex_);
        started_ = true;
        changed_.notify_all();
        changed_.wait_for(lock, kIdle, [this] { return !queue_.empty() || leaves_ || aborts_; });
        if (!queue_.empty()) next = queue_.front();
      }
      answer();
      if (next == nullptr && leaves_) break;
      if (next == nullptr) continue;
      ++place_.operation;
      const Clock::time_point begin = Clock::now();
      std::exception_ptr error;
      try {
        run_collective(next->request, rank(), size(), scratch_,
                       [this](MPI_Request pending, const char* doing) { finish(pending, doing); });
      } catch (...) {
        error = std::current_exception();
      }
      const std::lock_guard<std::mutex> lock(mutex_);
      queue_.pop_front();
      if (error) failed_.push_back(next);
      time_.busy += seconds_since(begin);
      next->error = error;
      next->over = true;
      changed_.notify_all();
    }
    MPI_Finalize();
  }

  void begin() {
    const int launched = size();
    ask_for_short_slices();
    check_shared_memory();
    int provided = 0;
    check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    int found = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &found);
    if (found != launched) {
      std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> version{};
      int length = 0;
      MPI_Get_library_version(version.data(), &length);
      MPI_Finalize();
      throw CommunicationError(
          format("[join_launch] the launcher has started {} processes, but MPI knows of {}: the launcher "
                 "belongs to another MPI; try that of {:.40}",
                 launched, found, std::string(version.data(), std::strcspn(version.data(), ","))));
    }
    // Names of machines, padded to one length.
    constexpr int kLength = 64;
    std::string own = host_name(), all(static_cast<std::size_t>(launched * kLength), '\0');
    own.resize(kLength);
    check_mpi(MPI_Allgather(own.data(), kLength, MPI_CHAR, all.data(), kLength, MPI_CHAR, MPI_COMM_WORLD),
              "join_launch");
    for (int rank = 0; rank < launched; ++rank) hosts_.emplace_back(all.c_str() + rank * kLength);
  }

  /// Open MPI and MPICH exchange data through files in /dev/shm, and give poor messages when it is full.
  void check_shared_memory() const {
    struct statvfs found {};
    if (statvfs("/dev/shm", &found) != 0) return;
    const std::uint64_t free = std::uint64_t{found.f_bavail} * found.f_frsize;
    const std::uint64_t needed = static_cast<std::uint64_t>(size()) * kLeastSharedMemory;
    if (free >= needed || free >= 64 * kLeastSharedMemory) return;
    throw CommunicationError(format(
        "[join_launch] /dev/shm has {} MiB left, and {} processes may need {}; in a container, start it "
        "with --ipc=host or --shm-size=1g",
        free >> 20, size(), needed >> 20));
  }

  /// Waits until MPI has finished `request`, and meanwhile answers other ranks' questions.
  void finish(MPI_Request request, const char* doing) {
    const Clock::time_point begin = Clock::now();
    for (int looks = 0;; ++looks) {
      int done = 0;
      check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), doing);
      if (done != 0) return;
      if (looks < kQuickLooks) continue;
      answer();
      const double limit = limit_;
      if (limit > 0 && seconds_since(begin) > limit)
        throw CommunicationError(describe_stragglers(doing, limit));
      std::this_thread::sleep_for(kPause);
    }
  }

  /// Answers the ranks that ask for this one's progress; ends the launch if that was requested.
  void answer() {
    if (aborts_) MPI_Abort(MPI_COMM_WORLD, abort_code_);
    int asked = 0;
    MPI_Status from{};
    MPI_Iprobe(MPI_ANY_SOURCE, kQuestion, MPI_COMM_WORLD, &asked, &from);
    if (asked == 0) return;
    MPI_Recv(nullptr, 0, MPI_BYTE, from.MPI_SOURCE, kQuestion, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    place_.step = step_;
    MPI_Send(&place_, sizeof place_, MPI_BYTE, from.MPI_SOURCE, kAnswer, MPI_COMM_WORLD);
  }

  std::string describe_stragglers(const char* doing, double limit) {
    places_.resize(static_cast<std::size_t>(size()));
    std::vector<MPI_Request> questions(places_.size(), MPI_REQUEST_NULL), answers = questions;
    for (int rank = 0; rank < size(); ++rank) {
      if (rank == this->rank()) continue;
      const auto at = static_cast<std::size_t>(rank);
      MPI_Irecv(&places_[at], sizeof(Place), MPI_BYTE, rank, kAnswer, MPI_COMM_WORLD, &answers[at]);
      MPI_Isend(nullptr, 0, MPI_BYTE, rank, kQuestion, MPI_COMM_WORLD, &questions[at]);
    }
    std::string late;
    int left = size() - 1;
    for (const Clock::time_point begin = Clock::now(); left > 0 && Clock::now() - begin < kMostForAnswers;) {
      answer();  // they may ask too
      for (int rank = 0; rank < size(); ++rank) {
        const auto at = static_cast<std::size_t>(rank);
        if (answers[at] == MPI_REQUEST_NULL) continue;
        int done = 0;
        MPI_Test(&answers[at], &done, MPI_STATUS_IGNORE);
        if (done == 0) continue;
        --left;
        if (places_[at].operation < place_.operation)
          late += format("; {} has not reached it and is at step {}", name(rank), places_[at].step);
      }
      std::this_thread::sleep_for(kPause);
    }
    for (int rank = 0; rank < size(); ++rank)
      if (answers[static_cast<std::size_t>(rank)] != MPI_REQUEST_NULL)
        late += format("; {} does not answer", name(rank));
    if (late.empty()) late = "; all ranks have reached it: the network may be down";
    return format("[{}] has waited for {} s at step {}{}", doing, limit, step_.load(), late);
  }

  std::thread thread_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Operation>> queue_;  // guarded by the mutex, as what follows
  CommunicationTime time_;
  bool started_ = false;
  std::exception_ptr error_;
  std::atomic<bool> leaves_{false}, aborts_{false};
  std::atomic<int> abort_code_{0};
  std::atomic<double> limit_{0};
  std::atomic<Index> step_{0};
  Place place_;                // the thread's own, as what follows
  std::vector<Place> places_;  // of all ranks; answers may come after they were waited for
  std::vector<std::string> hosts_;
  PooledVector<char> scratch_;
  std::vector<std::shared_ptr<Operation>> failed_;  // to whose tensors MPI may still write
};

/// Never destroyed, because its thread may run until the process ends.
std::shared_ptr<MpiCommunicator>& joined() {
  static auto* const communicator = new std::shared_ptr<MpiCommunicator>;
  return *communicator;
}

}  // namespace

std::shared_ptr<Communicator> join_launch() {
  if (joined() == nullptr && launched_rank().size > 1)
    joined() = std::make_shared<MpiCommunicator>(launched_rank());
  static const std::shared_ptr<Communicator> alone = communicator_alone();
  return joined() == nullptr ? alone : joined();
}

void limit_collectives(double seconds) {
  if (joined() != nullptr) joined()->limit(seconds);
}

void leave_launch() {
  if (const auto leaving = std::exchange(joined(), nullptr)) leaving->leave();
}

void abort_launch(int code) {
  if (joined() != nullptr) joined()->abort(code);
}

std::string name_of_this_rank() { return joined() == nullptr ? "" : joined()->name(joined()->rank()); }

}  // namespace tapeformer
