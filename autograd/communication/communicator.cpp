#include <tapeformer/autograd/communication/communicator.h>
#include <tapeformer/autograd/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace tapeformer {
namespace {

class Alone : public Communicator {
 public:
  Alone() : Communicator(0, 1) {}

 protected:
  Communication start(const Request&) override { return {}; }
};

}  // namespace

void Communication::wait() {
  if (const auto state = std::exchange(state_, nullptr)) state->wait();
}

Communication Communicator::checked(const Request& request) {
  const auto& [collective, x] = request;
  const bool scatters = collective == Collective::reduce_scatter;
  if ((scatters || collective == Collective::all_reduce) && !is_floating(x.dtype()))
    throw DTypeError(
        format("[{}] a sum needs f32, f64 or bf16; got x={}", name_of(collective), x.describe()));
  if ((scatters || collective == Collective::all_gather) && x.elements() % size_ != 0) {
    throw ShapeError(
        format("[{}] the elements must divide into equal shares for {} ranks; got x={}; try padding",
               name_of(collective), size_, x.describe()));
  }
  return size_ == 1 || x.elements() == 0 ? Communication() : start(request);
}

std::vector<double> Communicator::sum(const std::vector<double>& numbers) {
  const Tensor x = Tensor::empty({static_cast<Index>(numbers.size())}, DType::f64, Device::cpu());
  std::copy(numbers.begin(), numbers.end(), x.data<double>());
  all_reduce(x).wait();
  return x.to_vector<double>();
}

std::vector<std::string> Communicator::gather(const std::string& text) {
  // Lengths first, then the texts in whole words, all as long as the longest.
  const Tensor lengths = Tensor::empty({size_}, DType::i32, Device::cpu());
  std::int32_t* const length = lengths.data<std::int32_t>();
  length[rank_] = static_cast<std::int32_t>(text.size());
  all_gather(lengths).wait();
  const Index words = (*std::max_element(length, length + size_) + 3) / 4;
  const Tensor texts = Tensor::empty({size_, words}, DType::i32, Device::cpu());
  const auto at = [&](int rank) {
    return reinterpret_cast<char*>(texts.data<std::int32_t>() + rank * words);
  };
  std::memcpy(at(rank_), text.data(), text.size());
  all_gather(texts).wait();
  std::vector<std::string> result;
  for (int rank = 0; rank < size_; ++rank)
    result.emplace_back(at(rank), static_cast<std::size_t>(length[rank]));
  return result;
}

std::shared_ptr<Communicator> communicator_alone() { return std::make_shared<Alone>(); }

}  // namespace tapeformer
