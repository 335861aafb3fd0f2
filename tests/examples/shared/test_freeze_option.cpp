#include <tapeformer/examples/language/run.h>
#include <tapeformer/nn/formats/safetensors.h>
#include <tapeformer/tests/examples/language/language_case.h>
#include <tapeformer/tests/nn/module_case.h>

using namespace tapeformer;

namespace {

bool is_frozen(const std::string& name) {
  return name.find("layers.0.") != std::string::npos || name.find("embedding") != std::string::npos;
}

/// The checkpoint's tensors of optimizers and averages, by whether they are a frozen parameter's.
std::pair<Index, Index> states_in(const RunFolder& folder) {
  std::pair<Index, Index> counts{0, 0};
  const SafetensorsFile file = SafetensorsFile::open(folder.file("checkpoint.safetensors"));
  for (const std::string& name : file.names()) {
    if (name.find("model.") == 0) continue;
    ++(is_frozen(name) ? counts.first : counts.second);
  }
  return counts;
}

}  // namespace

TEST_CASE_FIXTURE(LanguageCase,
                  "frozen parameters keep their values, have no state, and stay frozen when a run goes on") {
  options.model.layers = 2;
  options.training.steps = 6, options.training.warmup = 1, options.training.validate_every = 3;
  const RunFolder base(temporary.file("base"));
  REQUIRE(train_language_model(base, options, {}) == kExitSuccess);
  options.from = base.path();
  options.training.freeze = {"layers.[0].*", "embedding.*"};
  for (const char* optimizer : {"adamw", "muon"}) {
    for (const bool recompute : {false, true}) {
      CAPTURE(optimizer);
      options.training.optimizer.set_kind(optimizer);
      options.training.average_decay = std::string(optimizer) == "adamw" ? 0.5 : 0;
      options.training.recompute_layers = recompute;
      const std::string name = temporary.file(optimizer + std::to_string(recompute));
      const RunFolder whole(name), broken(name + "-broken");
      REQUIRE(train_language_model(whole, options, {}) == kExitSuccess);
      LanguageRun before = LanguageRun::load(base.path()), after = LanguageRun::load(whole.path());
      const auto weights = before.model.named_parameters(), tuned = after.model.named_parameters();
      for (std::size_t i = 0; i < weights.size(); ++i) {
        CAPTURE(weights[i].first);
        const bool same = same_bits(weights[i].second.value(), tuned[i].second.value());
        CHECK(same == is_frozen(weights[i].first));
      }
      CHECK(states_in(whole).first == 0);
      CHECK(states_in(whole).second > 0);

      TrainingControl three_steps;
      Index asked = 0;
      three_steps.stops = [&] { return ++asked > 3; };
      CHECK(train_language_model(broken, options, three_steps) == kExitInterrupted);
      CHECK(resume_language_model(broken, {}) == kExitSuccess);
      CHECK((read_file(whole.file("weights.safetensors")) == read_file(broken.file("weights.safetensors"))));
    }
  }
}
