#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/autograd/system/file.h>
#include <tapeformer/autograd/tape/tape.h>
#include <tapeformer/nn/formats/expression.h>
#include <tapeformer/nn/formats/hugging_face.h>
#include <tapeformer/nn/formats/safetensors_folder.h>
#include <tapeformer/nn/formats/strict_json.h>

#include <cstring>
#include <map>

namespace tapeformer {
namespace {

void check_tied(const SafetensorsFolder& files, const std::string& head, const std::string& embedding) {
  const Tensor a = files.tensor(head).to(Device::cpu()), b = files.tensor(embedding).to(Device::cpu());
  if (a.shape() == b.shape() && a.dtype() == b.dtype() &&
      std::memcmp(a.raw(), b.raw(), static_cast<std::size_t>(a.bytes())) == 0)
    return;
  throw CheckpointError(files.path() + ": " + head + " differs from " + embedding +
                        ", to which the configuration ties it; try tie_word_embeddings=false");
}

/// The parameters of a model and where they are in the files.
/// Throws:  CheckpointError unless each tensor is there with its shape, and there are no others
std::vector<ForeignParameter> found_parameters(const SafetensorsFolder& files, const TensorNames& names,
                                               const DecoderOnlyConfig& config) {
  // Checked before anything is allocated: a damaged configuration may demand any size.
  if (config.layers > static_cast<Index>(files.names().size()))
    throw CheckpointError(files.path() + ": has too few tensors for " + number_of(config.layers, "layer"));
  std::vector<ForeignParameter> parameters;
  try {
    parameters = foreign_parameters(names, config);
  } catch (const ShapeError& error) {  // more values in a tensor than can be counted
    throw CheckpointError(files.path() + ": the weights do not fit the model: " + error.what());
  }
  const std::string head = names.weight("head"), embedding = names.weight("embedding");
  std::size_t left_out = files.contains(embedding) ? 0 : names.prefix().size();
  if (!files.contains(embedding.substr(left_out))) left_out = 0;  // a model without a head has no prefix
  std::vector<std::pair<std::string, Shape>> wanted;
  for (ForeignParameter& parameter : parameters) {
    for (ForeignPart& part : parameter.parts) {
      if (part.name != head) part.name.erase(0, left_out);
      wanted.emplace_back(part.name, part.shape);
    }
  }
  files.check_fit(wanted, [&](const std::string& name) {
    return (config.tie_head && name == head) || names.is_constant(name);
  });
  if (config.tie_head && files.contains(head)) check_tied(files, head, embedding.substr(left_out));
  return parameters;
}

/// Calls function() and puts the path before the message of an exception.
template <class F>
auto naming(const std::string& path, const F& function) {
  try {
    return function();
  } catch (const CheckpointError& error) {
    throw CheckpointError(path + ": " + error.what());
  }
}

}  // namespace

DecoderOnly load_hugging_face(const std::string& folder) {
  const std::string path = folder + "/config.json", text = read_file<CheckpointError>(path);
  const FamilyModel found = naming(path, [&] { return hugging_face_model(text); });
  const SafetensorsFolder files = SafetensorsFolder::open(folder);
  const auto sources = found_parameters(files, found.family->names, found.config);
  const NoGradGuard pause;
  Generator random(0);
  DecoderOnly model(found.config, random);
  std::map<std::string, Parameter> parameters;
  for (const auto& [name, parameter] : model.named_parameters()) parameters.emplace(name, parameter);
  for (const ForeignParameter& source : sources) {
    TensorList parts;
    for (const ForeignPart& part : source.parts)
      parts.push_back(to_ours(part, files.tensor(part.name).to(DType::f32)));
    parameters.at(source.name).value().copy_from(parts.size() == 1 ? parts[0] : concat(parts, 0));
    parameters.erase(source.name);
  }
  for (const auto& [name, parameter] : parameters)
    throw CheckpointError(files.path() + ": has nothing for " + name);
  model.eval();
  return model;
}

void save_hugging_face(const std::string& folder, DecoderOnly& model, const ControlTokens& tokens) {
  const DType type = model.parameters().front().value().dtype();
  const std::string json = naming(folder, [&] { return hugging_face_json(model.config(), type, tokens); });
  const Family& family = *expression_in(transformers_format(), model.config()).family;
  const auto tensors = naming(folder, [&] { return foreign_tensors(family.names, model); });
  save_safetensors(folder + "/model.safetensors", tensors,
                   {{"format", "pt"}});  // transformers requires the format
  write_atomically(folder + "/config.json", json);
}

bool is_hugging_face(const std::string& folder) {
  const std::string path = folder + "/config.json", text = read_file<CheckpointError>(path);
  const auto json = naming(path, [&] { return parse_json(text, "the configuration", kConfigLevels); });
  if (json.is_object() && json.contains("model_type")) return true;
  if (json.is_object() && json.contains("model")) return false;
  throw CheckpointError(path + ": has neither model_type, as of transformers, nor model, as of ours");
}

}  // namespace tapeformer
