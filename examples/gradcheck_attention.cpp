#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/system/file.h>
#include <tapeformer/autograd/system/threads.h>
#include <tapeformer/examples/gradcheck/attention_cost.h>
#include <tapeformer/examples/gradcheck/planted_faults.h>
#include <tapeformer/examples/shared/compute.h>
#include <tapeformer/examples/shared/option_table.h>
#include <tapeformer/examples/shared/program.h>
#include <tapeformer/examples/shared/progress.h>

#include <nlohmann/json.hpp>

#include <cstdio>
#include <iostream>

namespace tapeformer {
namespace {

constexpr int kExitFailed = 1;

struct Options : GradcheckRunOptions {
  std::vector<std::string> layers, modes;
  std::string json;
  ComputeOptions compute;
  Index threads = 1;  // such small tensors gain nothing from more
  bool list = false, self_test = false, cost = false;

  bool json_to_output() const { return json == "-"; }
};

/// Adds the results of work(check) for every check to `results` and prints them unless standard output is for
/// JSON, with progress on standard error after the first seconds. Returns the seconds it took.
template <class Result, class Work, class Print>
double for_each_check(const std::vector<AttentionCheck>& checks, const Options& options,
                      std::vector<Result>& results, const Work& work, const Print& print_result) {
  std::size_t done = 0;
  Progress progress;
  const double begun = now_seconds();
  for (const AttentionCheck& check : checks) {
    const std::vector<Result> found = work(check);
    progress.clear();
    for (const Result& result : found) {
      results.push_back(result);
      if (!options.json_to_output()) print_result(std::cout, result);
    }
    std::cout.flush();
    const double passed = now_seconds() - begun;
    const auto left = static_cast<double>(checks.size() - ++done);
    if (passed > 2 && left > 0) {
      progress.status(std::to_string(done) + "/" + std::to_string(checks.size()) + " " + check.layer + " " +
                      check.mode.name + ", " + duration_text(passed / static_cast<double>(done) * left) +
                      " left");
    }
  }
  return now_seconds() - begun;
}

int list_checks(const std::vector<AttentionCheck>& checks) {
  std::string layer;
  for (const AttentionCheck& check : checks) {
    const std::string& mode = check.mode.name;
    if (check.layer != layer) std::cout << (layer.empty() ? "" : "\n") << check.layer;
    layer = check.layer;
    if (mode == "self" || mode == "cross") {
      std::cout << "\n  " << mode;
    } else {
      std::cout << ", " << mode.substr(mode.find(' ') + 1);
    }
  }
  std::cout << "\n";
  return kExitSuccess;
}

void write_json(const Options& options, const nlohmann::ordered_json& json) {
  const std::string text = json.dump(2) + "\n";
  if (options.json_to_output()) {
    std::cout << text;
  } else if (!options.json.empty()) {
    write_atomically(options.json, text);
  }
}

int check_gradients(const std::vector<AttentionCheck>& checks, const Options& options) {
  std::vector<CheckResult> results;
  const bool table = !options.json_to_output();
  if (table) print_header(std::cout);
  const double seconds = for_each_check(
      checks, options, results,
      [&](const AttentionCheck& check) { return std::vector{run_check(check, options)}; }, print_row);
  const bool passed = print_summary(table ? std::cout : std::cerr, results, options, seconds);
  write_json(options, results_json(results, options, seconds));
  return passed ? kExitSuccess : kExitFailed;
}

int self_test(const std::vector<AttentionCheck>& selected, const Options& options) {
  const std::vector<AttentionCheck> checks = options.modes.empty() ? checks_for_faults(selected) : selected;
  std::vector<PlantedFault> faults;
  const bool table = !options.json_to_output();
  if (table) print_fault_header(std::cout);
  const double seconds = for_each_check(
      checks, options, faults, [&](const AttentionCheck& check) { return plant_faults(check, options); },
      print_fault);
  const bool passed = print_fault_summary(table ? std::cout : std::cerr, faults, seconds);
  write_json(options, faults_json(faults));
  return passed ? kExitSuccess : kExitFailed;
}

void describe(const Command& command, Options& options) {
  command.option("--layer", options.layers, "check this layer only; may be given several times");
  command.option("--mode", options.modes,
                 "check this mode only, such as \"self causal\", or causal for self- and cross-attention");
  command.flag("--list", options.list, "print the layers with their modes, and check nothing");
  command.flag("--self-test", options.self_test,
               "plant faults in recorded backward passes, and see that each is noticed");
  command.flag(
      "--cost", options.cost,
      "what each kind of attention costs at the chosen sizes, and experts: parameters, FLOPs, memory");
  command.option("--json", options.json, "write the results as JSON to this file; to standard output without")
      .optional_value("-", "[FILE]");

  add_options(command, fields_of<GradcheckRunOptions>(options));
  command.find("--dtype").one_of({"f64", "f32"});
  command.find("--stencil").one_of({"2", "4"});
  options.compute.add_to(command, false);
  command.find("--device").group("Check");
  add_threads_option(command, options.threads, "0 for all cores; at small sizes one is the fastest");
  command.find("--threads").group("Check");
  const auto part = [&](const char* name, bool& wanted, const char* help) {
    command.flag(name, wanted, help).group("Check");
  };
  part("--second,!--no-second", options.second, "second derivatives too (the default)");
  part("--forward,!--no-forward", options.forward,
       "forward mode too (the default): derivatives along directions, against differences and the backward "
       "pass");
  part("--repeats,!--no-repeats", options.repeats,
       "see that another backward pass gives the same bits (the default)");
}

/// Refuses options that a listing, a table or the self-test ignores. Throws: Error
void refuse_ignored(const Command& command, const Options& options) {
  if (options.list) command.refuse_all_but({"--list", "--layer", "--mode"}, "with --list");
  if (options.cost) {
    command.refuse_all_but({"--cost", "--dtype", "--batch", "--queries", "--width", "--heads", "--groups",
                            "--head-width", "--value-width", "--latent-width", "--hidden-width"},
                           "with --cost");
  }
  if (options.type == "f32") command.refuse({"--stencil", "--step", "--elements"}, "with --dtype f32");
  if (options.type == "f32" && options.forward) command.refuse({"--forward"}, "with --dtype f32");
  if (options.self_test && options.second)
    command.refuse({"--second"}, "with --self-test, which plants faults in first derivatives");
  if (options.self_test && options.forward)
    command.refuse({"--forward"}, "with --self-test, which checks it where it must notice");
  if (options.self_test && options.repeats)
    command.refuse({"--repeats"}, "with --self-test, which repeats where it must notice");
}

int run(int argc, char** argv) {
  const CommandLine line(
      "Checks the gradients of every attention layer in every mode. Without arguments: all of them, in "
      "double,\n"
      "against central differences, first and second derivatives, forward mode, and the bits of another "
      "pass.\n"
      "Exit codes: 0 all agree, 1 some do not, 2 bad arguments.");
  line.footer(
      "Examples:\n"
      "  gradcheck_attention                                  everything\n"
      "  gradcheck_attention --layer multi_head               one layer in all its modes\n"
      "  gradcheck_attention --mode causal --no-second        one mode of all layers, first derivatives\n"
      "  gradcheck_attention --queries 33 --head-width 32 --layer scaled_dot_product\n"
      "  gradcheck_attention --dtype f32                      how far single precision is off\n"
      "  gradcheck_attention --json results.json              every input's errors\n"
      "  gradcheck_attention --self-test                      would it notice a wrong gradient?\n"
      "  gradcheck_attention --cost --queries 2048 --width 1024 --heads 16 --dtype f32");
  Options options;
  describe(line, options);
  if (!line.read(argc, argv)) return kExitSuccess;
  refuse_ignored(line, options);
  options.check();
  if (options.cost) {
    print_attention_cost(std::cout, options.sizes, options.type == "f64" ? DType::f64 : DType::f32);
    return kExitSuccess;
  }
  if (options.self_test && options.type != "f64")
    throw Error("--self-test needs --dtype f64; got " + options.type);
  const std::vector<AttentionCheck> checks = selected_checks(options.layers, options.modes);
  if (options.list) return list_checks(checks);
  if (!options.json.empty() && !options.json_to_output()) check_writable(options.json);
  options.sizes.device = options.compute.chosen().device;
  if (options.sizes.device.is_cuda())
    std::fprintf(stderr, "checks on %s\n", options.sizes.device.text().c_str());
  use_threads(static_cast<int>(options.threads));
  if (options.self_test) return self_test(checks, options);
  return check_gradients(checks, options);
}

}  // namespace
}  // namespace tapeformer

int main(int argc, char** argv) {
  return tapeformer::run_program("gradcheck_attention", [&] { return tapeformer::run(argc, argv); });
}
