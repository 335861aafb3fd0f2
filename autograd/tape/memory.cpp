#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/autograd/tape/tape.h>

#include <algorithm>
#include <numeric>
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
    const Storage* used = slot.leaf.state()->storage.get();  // the value, or its shadow
    if (std::binary_search(storages.begin(), storages.end(), used)) {
      memory.parameter_bytes += static_cast<Index>(used->bytes);
    }
  }
  return memory;
}

void Tape::print(std::ostream& out) const {
  const auto typed = [this](std::int32_t index) {
    const Slot& slot = slots_[static_cast<std::size_t>(index)];
    return format("%{} {}{}", index, name_of(slot.dtype), slot.shape.text());
  };
  const auto named = [&](std::int32_t index) {
    if (index < 0) return std::string("constant");
    const ParameterState* parameter = slots_[static_cast<std::size_t>(index)].parameter.get();
    if (parameter == nullptr) return format("%{}", index);
    return parameter->name.empty() ? "parameter " + typed(index) : parameter->name;
  };
  for (const Node& node : nodes_) {
    std::vector<std::int32_t> outputs(static_cast<std::size_t>(node.outputs));
    std::iota(outputs.begin(), outputs.end(), node.first_output);
    std::size_t bytes = 0;
    for (const Handle<Storage>& saved : node.saved) bytes += saved->bytes;
    out << format("{} = {}({})  saves {} bytes\n", joined(outputs, ", ", typed), node.op,
                  joined(node.inputs, ", ", named), bytes);
  }
}

void Tape::check_reached_parameters() const {
  bool trains = false;
  std::vector<std::int32_t> forgotten;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const ParameterState* parameter = slots_[i].parameter.get();
    if (parameter == nullptr || !parameter->has_gradient) continue;
    trains = trains || parameter->optimized;
    if (parameter->trainable && !parameter->optimized && parameter->name.empty())
      forgotten.push_back(static_cast<std::int32_t>(i));
  }
  if (!trains || forgotten.empty()) return;
  const auto described = [this](std::int32_t slot) {
    const auto reader = std::find_if(nodes_.begin(), nodes_.end(), [slot](const Node& node) {
      return std::find(node.inputs.begin(), node.inputs.end(), slot) != node.inputs.end();
    });
    const Tensor& value = slots_[static_cast<std::size_t>(slot)].parameter->value;
    return reader == nodes_.end() ? value.describe()
                                  : format("{} (read by {})", value.describe(), reader->op);
  };
  throw TapeError(
      format("[backward] a parameter used together with an optimizer's must be in an optimizer or named by a "
             "visit(), or it would be neither trained nor saved; got gradients of {}; try "
             "visitor.parameter() or visitor.child() in its module's visit(), set_trainable(false), or "
             "set_name() if you update it yourself",
             joined(forgotten, ", ", described)));
}

}  // namespace tapeformer
