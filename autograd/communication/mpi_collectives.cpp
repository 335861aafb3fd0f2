#include <tapeformer/autograd/communication/mpi_collectives.h>
#include <tapeformer/autograd/communication/rank_sums.h>
#include <tapeformer/autograd/format.h>

#include <algorithm>
#include <array>

namespace tapeformer {
namespace {

constexpr Index kMostGathered = 32 << 10;  // bytes up to which all ranks get all values, and add them all

MPI_Datatype mpi_type(DType type) {
  switch (type) {
    case DType::f32: return MPI_FLOAT;
    case DType::f64: return MPI_DOUBLE;
    case DType::bf16: return MPI_UINT16_T;
    case DType::i32: return MPI_INT32_T;
    case DType::boolean: return MPI_UINT8_T;
  }
  return MPI_BYTE;
}

/// The elements of each rank when `count` are divided: from begins[rank] on, counts[rank].
struct Shares {
  Shares(int count, int size) {
    const int share = count / size + (count % size > 0 ? 1 : 0);  // without overflow
    for (int rank = 0; rank < size; ++rank) {
      begins.push_back(std::min(count, rank * share));
      counts.push_back(std::min(share, count - begins.back()));
    }
  }
  std::vector<int> begins, counts;
};

}  // namespace

void check_mpi(int status, const char* doing) {
  if (status == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(status, text.data(), &length);
  throw CommunicationError(format("[{}] MPI: {}", doing, text.data()));
}

void run_collective(const Communicator::Request& request, int rank, int size, PooledVector<char>& scratch,
                    const FinishMpi& finish) {
  const char* const doing = name_of(request.collective);
  const Tensor& x = request.x;
  const MPI_Datatype type = mpi_type(x.dtype());
  const auto count = static_cast<int>(x.elements());
  const auto width = static_cast<std::size_t>(bytes_of(x.dtype()));
  auto* const data = static_cast<char*>(x.raw());
  MPI_Request pending = MPI_REQUEST_NULL;
  // Room for `elements` of each rank.
  const auto room = [&](int elements) {
    const std::size_t bytes = width * static_cast<std::size_t>(elements) * static_cast<std::size_t>(size);
    if (scratch.size() < bytes) scratch.resize(bytes);
    return scratch.data();
  };
  const auto run = [&](int status) {
    check_mpi(status, doing);
    finish(pending, doing);
  };
  if (request.collective == Collective::broadcast) {
    run(MPI_Ibcast(data, count, type, 0, MPI_COMM_WORLD, &pending));
    return;
  }
  if (request.collective == Collective::all_reduce && x.bytes() <= kMostGathered) {
    char* const all = room(count);
    run(MPI_Iallgather(data, count, type, all, count, type, MPI_COMM_WORLD, &pending));
    add_ranks(x.dtype(), all, size, count, data);
    return;
  }
  const Shares shares(count, size);
  if (request.collective != Collective::all_gather) {
    const int begin = shares.begins[static_cast<std::size_t>(rank)],
              own = shares.counts[static_cast<std::size_t>(rank)];
    std::vector<int> own_counts, own_begins;
    for (int from = 0; from < size; ++from) {
      own_counts.push_back(own);
      own_begins.push_back(from * own);
    }
    char* const all = room(own);
    run(MPI_Ialltoallv(data, shares.counts.data(), shares.begins.data(), type, all, own_counts.data(),
                       own_begins.data(), type, MPI_COMM_WORLD, &pending));
    add_ranks(x.dtype(), all, size, own, data + static_cast<std::size_t>(begin) * width);
    if (request.collective == Collective::reduce_scatter) return;
  }
  run(MPI_Iallgatherv(MPI_IN_PLACE, 0, type, data, shares.counts.data(), shares.begins.data(), type,
                      MPI_COMM_WORLD, &pending));
}

}  // namespace tapeformer
