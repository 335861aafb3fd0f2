#include <tapeformer/autograd/config/config_json.h>
#include <tapeformer/autograd/config/json.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/autograd/storage_limit.h>
#include <tapeformer/nn/formats/ends_with.h>
#include <tapeformer/nn/transformer/load_model.h>

namespace tapeformer {

constexpr const char* kRemedy = "; try the config.json that was saved with these weights";

std::string config_text(const char* model, const FieldList& fields) {
  nlohmann::ordered_json json;
  json["model"] = model;
  write_fields(json, fields);
  return json.dump(2) + "\n";
}

void read_config_text(const char* model, const std::string& text, FieldList&& fields,
                      const std::function<void()>& check) {
  const auto json = parse_json(text, "the model's configuration is damaged: it");
  if (json.is_object() && json.contains("model_type") && !json.contains("model"))
    throw CheckpointError(
        "the configuration belongs to transformers, model_type=" + json["model_type"].dump() +
        ", and not to a run; try load_hugging_face(), or load_checkpoint() in Python");
  try {
    if (json.at("model") != model)
      throw Error(std::string("model must be ") + model + "; got " + json["model"].dump());
    read_fields(json, std::move(fields),
                {"model", "training", "vocabularies", "tokenizer_fingerprint", "data_fingerprint"});
    check();
  } catch (const nlohmann::json::exception& error) {
    throw CheckpointError(std::string("the model's configuration is damaged: ") + reason_of(error));
  } catch (const Error& error) {
    throw CheckpointError(std::string("the model's configuration is not usable: ") + error.what());
  }
}

void make_in_proportion(const FieldList& fields, const SafetensorsFolder& files,
                        const std::function<void()>& make) {
  const std::vector<std::string> names = files.names();
  double values = 0;
  Index layers = 0, most = -1;
  std::string largest;
  for (const std::string& name : names) {
    const Shape shape = files.shape(name);
    values += static_cast<double>(shape.elements());
    if (shape.elements() <= most) continue;
    most = shape.elements();
    largest = name + " " + shape.text();
  }
  for (const ConfigField& field : fields)
    if (ends_with(field.name, "layers")) layers += std::get<Index>(*field.value());
  const auto fail = [&](const std::string& what) {
    throw CheckpointError(files.path() + ": the weights do not fit the model: " + what + kRemedy);
  };
  if (layers > static_cast<Index>(names.size()))
    fail(format("{} are too few for {}", number_of(names.size(), "tensor"), number_of(layers, "layer")));
  const StorageLimit limit(bytes_in_proportion(values));
  try {
    make();
  } catch (const Error& error) {
    fail(format("{}, where the largest in the file is {}", error.what(), largest));
  }
}

void load_own_weights(const SafetensorsFile& file, Module& module) {
  try {
    load_weights(file, "", module);
  } catch (const CheckpointError& error) {
    throw CheckpointError(std::string(error.what()) + kRemedy);
  }
}

}  // namespace tapeformer
