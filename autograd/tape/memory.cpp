#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/tape/tape.h>

#include <algorithm>
#include <ostream>

namespace tapeformer {

TapeMemory Tape::memory() const {
  TapeMemory memory;
  memory.nodes = static_cast<Index>(nodes_.size());
  std::vector<const Storage*> storages;
  for (const Node& node : nodes_) {
    for (const Handle<Storage>& saved : node.saved) storages.push_back(saved.get());
  }
  std::sort(storages.begin(), storages.end());
  storages.erase(std::unique(storages.begin(), storages.end()), storages.end());
  for (const Storage* storage : storages) memory.saved_bytes += static_cast<Index>(storage->bytes);
  for (const Slot& slot : slots_) {
    if (slot.parameter.get() == nullptr) continue;
    const Storage* value = slot.parameter->value.state()->storage.get();
    if (std::binary_search(storages.begin(), storages.end(), value)) {
      memory.parameter_bytes += static_cast<Index>(value->bytes);
    }
  }
  return memory;
}

void Tape::print(std::ostream& out) const {
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    const Node& node = nodes_[i];
    Index bytes = 0;
    for (const Handle<Storage>& saved : node.saved) bytes += static_cast<Index>(saved->bytes);
    for (std::int32_t k = 0; k < node.outputs; ++k) {
      const Slot& slot = slots_[static_cast<std::size_t>(node.first_output + k)];
      out << (k > 0 ? ", " : "") << '%' << node.first_output + k << ' ' << name_of(slot.dtype)
          << slot.shape.text();
    }
    out << " = " << node.op << '(';
    for (std::size_t k = 0; k < node.inputs.size(); ++k) {
      const std::int32_t input = node.inputs[k];
      out << (k > 0 ? ", " : "");
      if (input < 0) {
        out << "constant";
        continue;
      }
      const Slot& slot = slots_[static_cast<std::size_t>(input)];
      if (slot.parameter && !slot.parameter->name.empty()) {
        out << slot.parameter->name;
      } else if (slot.parameter) {
        out << "parameter %" << input << ' ' << name_of(slot.dtype) << slot.shape.text();
      } else {
        out << '%' << input;
      }
    }
    out << ")  saves " << bytes << " bytes\n";
  }
}

void Tape::check_reached_parameters() const {
  bool trains = false, forgot = false;
  const auto is_forgotten = [](const ParameterState& parameter) {
    return parameter.trainable && !parameter.optimized && parameter.name.empty();
  };
  for (const Slot& slot : slots_) {
    if (!slot.parameter || !slot.parameter->has_gradient) continue;
    trains = trains || slot.parameter->optimized;
    forgot = forgot || is_forgotten(*slot.parameter);
  }
  if (!trains || !forgot) return;

  std::string got;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const Slot& slot = slots_[i];
    if (!slot.parameter || !slot.parameter->has_gradient || !is_forgotten(*slot.parameter)) continue;
    got += (got.empty() ? "" : ", ") + slot.parameter->value.describe();
    const auto reads = [&](const Node& node) {
      return std::find(node.inputs.begin(), node.inputs.end(), static_cast<std::int32_t>(i)) !=
             node.inputs.end();
    };
    const auto reader = std::find_if(nodes_.begin(), nodes_.end(), reads);
    if (reader != nodes_.end()) got += std::string(" (read by ") + reader->op + ")";
  }
  throw TapeError(
      "[backward] a parameter used beside an optimizer's must be in an optimizer or named by a visit(), or "
      "it "
      "would be neither trained nor saved; got gradients of " +
      got +
      "; try visitor.parameter() or visitor.child() in its module's visit(), set_trainable(false), or "
      "set_name() if you update it yourself");
}

}  // namespace tapeformer
