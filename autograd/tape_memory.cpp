#include <tapeformer/autograd/tape.h>

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
      const ParameterState* parameter = slots_[static_cast<std::size_t>(input)].parameter.get();
      out << (parameter != nullptr && !parameter->name.empty() ? parameter->name
                                                               : "%" + std::to_string(input));
    }
    out << ")  saves " << bytes << " bytes\n";
  }
}

}  // namespace tapeformer
