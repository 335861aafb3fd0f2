#include <tapeformer/autograd/format.h>
#include <tapeformer/autograd/ops/matmul.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/autograd/tape/tape.h>
#include <tapeformer/nn/formats/ends_with.h>
#include <tapeformer/nn/formats/expression.h>
#include <tapeformer/nn/formats/peft.h>
#include <tapeformer/nn/formats/safetensors.h>
#include <tapeformer/nn/formats/strict_json.h>
#include <tapeformer/nn/linear.h>

#include <cmath>
#include <filesystem>
#include <set>

namespace tapeformer {
namespace {

using Json = nlohmann::ordered_json;

const std::string kWeight = ".weight";

std::string config_file(const std::string& folder) { return folder + "/adapter_config.json"; }
std::string weights_file(const std::string& folder) { return folder + "/adapter_model.safetensors"; }

std::string without_end(const std::string& name) { return name.substr(0, name.size() - kWeight.size()); }

/// The name of an adapter's matrix A or B.
std::string tensor_name(const std::string& module, const char* matrix) {
  return "base_model.model." + module + ".lora_" + matrix + kWeight;
}

/// The parameters of a model that may have adapters, and how the nearest family stores them.
struct LinearMaps {
  explicit LinearMaps(DecoderOnly& model) : layouts(layouts_of(model)) {
    DecoderOnlyConfig config = model.config();
    config.adapter = {};
    const Expression expression = expression_in(transformers_format(), config);
    expression.check();
    names = &expression.family->names;
    for (ForeignParameter& parameter : foreign_parameters(*names, layouts))
      if (ends_with(parameter.name, kWeight) && ends_with(parameter.parts[0].name, kWeight))
        list.push_back(std::move(parameter));
  }

  Layouts layouts;
  const TensorNames* names;
  std::vector<ForeignParameter> list;
};

/// The rank and the scale of all adapters of a folder.
std::pair<Index, double> rank_and_scale_in(const std::string& folder) {
  return naming(config_file(folder), [&] {
    const Json json = parse_json(read_file<CheckpointError>(config_file(folder)));
    JsonFields fields(json, "");
    fields.demand("peft_type", "LORA");
    fields.demand("bias", "none");
    for (const char* name : {"use_dora", "use_qalora", "lora_bias"}) fields.demand(name, false);
    for (const char* name : {"rank_pattern", "alpha_pattern"}) fields.demand(name, Json::object());
    for (const char* name : {"modules_to_save", "layer_replication", "trainable_token_indices",
                             "target_parameters", "alora_invocation_tokens"})
      fields.demand(name, nullptr);
    // Other ways to begin may have changed the model that the adapters are for.
    const Json begin = json.value("init_lora_weights", Json(true));
    if (!begin.is_boolean() && begin != "gaussian") fields.demand("init_lora_weights", true);
    fields.ignore({"init_lora_weights",
                   // Names, versions, and how the adapters were made and trained.
                   "base_model_name_or_path", "task_type", "auto_mapping", "peft_version", "revision",
                   "inference_mode", "target_modules", "exclude_modules", "lora_dropout", "fan_in_fan_out",
                   "layers_to_transform", "layers_pattern", "megatron_config", "megatron_core",
                   "loftq_config", "eva_config", "corda_config", "qalora_group_size", "runtime_config",
                   "arrow_config", "ensure_weight_tying", "lora_ga_config", "use_bdlora"});
    const double alpha = fields.number("lora_alpha");
    const Index rank = fields.size("r");
    const auto divisor = static_cast<double>(rank);
    const bool is_by_root = fields.flag("use_rslora", false);
    fields.finish();
    return std::pair(rank, alpha / (is_by_root ? std::sqrt(divisor) : divisor));
  });
}

}  // namespace

std::string peft_base(const std::string& folder) {
  const std::string file = config_file(folder);
  if (!std::filesystem::exists(file) || std::filesystem::exists(folder + "/config.json")) return {};
  return naming(file, [&] {
    JsonFields fields(parse_json(read_file<CheckpointError>(file)), "");
    std::string base = fields.text("base_model_name_or_path");
    if (!std::filesystem::exists(base + "/config.json"))
      fields.fail("base_model_name_or_path",
                  "= " + base + " is not a folder of a model here; try the path of one");
    return base;
  });
}

void apply_peft(const std::string& folder, DecoderOnly& model) {
  const NoGradGuard pause;
  const auto [rank, scale] = rank_and_scale_in(folder);
  const SafetensorsFile file = SafetensorsFile::open(weights_file(folder));
  const LinearMaps maps(model);
  naming(file.path(), [&, rank = rank, scale = scale] {
    std::set<std::string> unused;
    for (const std::string& name : file.names()) unused.insert(name);
    std::map<std::string, Parameter> parameters;
    for (const auto& [name, parameter] : model.named_parameters()) parameters.emplace(name, parameter);
    for (const ForeignParameter& map : maps.list) {
      for (const std::string& tied : map.same)
        if (unused.count(tensor_name(without_end(tied), "A")) > 0)
          throw CheckpointError(
              format("has an adapter of {}, which shares its weight with {}; try adapters without it", tied,
                     map.parts[0].name));
      const Tensor value = parameters.at(map.name).value();
      Index from = 0;
      bool is_adapted = false;
      TensorList rows;
      for (const ForeignPart& part : map.parts) {
        const std::string module = without_end(part.name);
        const Index count = part.rows();
        Tensor whole = slice(value, 0, from, count);
        from += count;
        const std::string name_a = tensor_name(module, "A"), name_b = tensor_name(module, "B");
        unused.erase(name_a), unused.erase(name_b);
        if (file.contains(name_a) || file.contains(name_b)) {
          const Index all_rows = part.heads > 0 ? part.shape[0] : count;
          const Tensor a = file.tensor(name_a).to(value.dtype()), b = file.tensor(name_b).to(value.dtype());
          if (a.shape() != Shape{rank, value.size(1)} || b.shape() != Shape{all_rows, rank})
            throw CheckpointError(
                format("the adapter of {} has A {} and B {}, and the weight is {}, its rank {}", module,
                       a.shape().text(), b.shape().text(), whole.shape().text(), rank));
          whole = whole + rows_to_ours(*maps.names, maps.layouts, part, matmul(b, a)) * scale;
          is_adapted = true;
        }
        rows.push_back(whole);
      }
      if (is_adapted) value.copy_from(rows.size() == 1 ? rows[0] : concat(rows, 0));
    }
    if (!unused.empty())
      throw CheckpointError("has " + *unused.begin() + ", which the model has no place for");
  });
}

void save_peft(const std::string& folder, DecoderOnly& model, const std::string& base) {
  const NoGradGuard pause;
  const LinearMaps maps(model);
  std::map<std::string, Tensor> adapters;
  for (const auto& [name, parameter] : model.named_parameters())
    if (is_of_adapter(name)) adapters.emplace(name, parameter.value());
  std::vector<std::pair<std::string, Tensor>> tensors;
  Json modules = Json::array();
  for (const ForeignParameter& map : maps.list) {
    const std::string layer = without_end(map.name) + ".";
    const auto b = adapters.find(layer + kAdapterB);
    if (b == adapters.end()) continue;
    const TensorList rows = rows_of_parts(*maps.names, maps.layouts, map, b->second);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const std::string module = without_end(map.parts[i].name);
      if (map.parts[i].heads > 0)
        throw CheckpointError(format(
            "{} has the rows of several matrices of ours, whose adapters differ; got {}; try an export "
            "with the adapters in the weights",
            module, map.name));
      tensors.emplace_back(tensor_name(module, "A"), adapters.at(layer + kAdapterA));
      tensors.emplace_back(tensor_name(module, "B"), rows[i]);
      modules.push_back(module);
    }
    adapters.erase(b);
    adapters.erase(layer + kAdapterA);
  }
  if (!adapters.empty()) throw CheckpointError("nothing stands for " + adapters.begin()->first);
  const AdapterConfig& config = model.config().adapter;
  const Json json = {{"peft_type", "LORA"},
                     {"task_type", "CAUSAL_LM"},
                     {"base_model_name_or_path", base},
                     {"r", config.rank},
                     {"lora_alpha", config.alpha},
                     {"target_modules", modules},
                     {"lora_dropout", 0.0},
                     {"bias", "none"},
                     {"fan_in_fan_out", maps.names->has(kTransposed)},
                     {"inference_mode", true}};
  save_safetensors(weights_file(folder), tensors, {{"format", "pt"}});
  write_atomically(config_file(folder), json.dump(2) + "\n");
}

}  // namespace tapeformer
