#include <tapeformer/examples/shared/run_folder.h>
#include <tapeformer/tests/nn/formats/temporary_folder.h>
#include <tapeformer/tests/reference/text.h>

#include <doctest/doctest.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <filesystem>

using namespace tapeformer;

namespace {

namespace fs = std::filesystem;

std::string refusal(const std::string& folder) {
  return message_of<DataError>([&] { const RunLock lock(folder); });
}

}  // namespace

TEST_CASE("a run folder is locked by one run at a time, named with its process and host") {
  const TemporaryFolder temporary;
  const std::string run = temporary.file("run");
  {
    const RunLock lock(run);
    char host[256] = {};
    gethostname(host, sizeof host - 1);
    CHECK(refusal(run) == run + ": is in use by process " + std::to_string(getpid()) + " on " + host +
                              "; wait until it has saved and ended, or name another --run folder");
    CHECK(has(refusal(run + "/"), "is in use by process "));
    CHECK(refusal(temporary.file("other")) == "nothing was thrown");
  }
  CHECK(refusal(run) == "nothing was thrown");
  CHECK(temporary.count() == 0);
}

TEST_CASE("a lock leaves the folders that it made only where something is in them") {
  const TemporaryFolder temporary;
  { const RunLock lock(temporary.file("a/b/c/")); }
  CHECK(temporary.count() == 0);
  {
    const RunLock lock(temporary.file("a/b/c"));
    write_bytes(temporary.file("a/b/c/config.json"), "{}");
  }
  CHECK(fs::exists(temporary.file("a/b/c/config.json")));
  fs::create_directory(temporary.file("mine"));
  { const RunLock lock(temporary.file("mine")); }
  CHECK(fs::is_empty(temporary.file("mine")));
  CHECK(refusal("/dev/null/run") == "/dev/null/run: cannot be made: Not a directory");
  write_bytes(temporary.file("file"), "");
  CHECK(has(refusal(temporary.file("file")), "file: cannot be made: "));
}

TEST_CASE("a lock whose file was removed leaves another run's alone") {
  const TemporaryFolder temporary;
  const std::string run = temporary.file("run");
  auto first = std::make_unique<RunLock>(run);
  fs::remove(run + "/training.lock");
  const RunLock second(run);
  first.reset();
  CHECK(has(refusal(run), "is in use by"));
}

TEST_CASE("a folder that was moved, or whose lock is gone, is no longer written to") {
  const TemporaryFolder temporary;
  const std::string run = temporary.file("run"), moved = temporary.file("moved");
  auto lock = std::make_shared<const RunLock>(run);
  const RunFolder folder(run, true, lock);
  const auto written = [&] { return message_of<DataError>([&] { folder.append_metrics({{"step", 1}}); }); };
  CHECK(written() == "nothing was thrown");
  fs::rename(run, moved);
  const std::string gone =
      run +
      ": was moved or removed during training, or its training.lock was: nothing more is written there; the "
      "last save is intact, and --resume continues in a moved folder";
  CHECK(written() == gone);
  const RunLock other(run);  // of another training, at the old path
  CHECK(written() == gone);
  CHECK(message_of<DataError>([&] { folder.write("config.json", "{}"); }) == gone);
  CHECK_FALSE(fs::exists(run + "/metrics.jsonl"));
  CHECK(read_bytes(moved + "/metrics.jsonl") == "{\"step\":1}\n");
}

TEST_CASE("a damaged or missing checkpoint's message names the last sound one before it") {
  const TemporaryFolder temporary;
  const RunFolder folder(temporary.file("."));
  const std::string last = folder.file("checkpoint.safetensors");
  const auto save = [&](Index step) {
    save_safetensors(last, {}, {{"state", "{\"step\": " + std::to_string(step) + "}"}});
  };
  const auto said = [&] { return message_of<CheckpointError>([&] { folder.checkpoint_state(); }); };
  for (const Index step : {2, 4, 10}) {
    save(step);
    folder.keep_checkpoint(step, 2);
  }
  save(12);
  CHECK(folder.checkpoint_state().at("step") == 12);
  CHECK_FALSE(fs::exists(folder.file("checkpoint-2.safetensors")));
  const auto after = [&](Index step) {
    const std::string kept = folder.file("checkpoint-" + std::to_string(step) + ".safetensors");
    return "; that of step " + std::to_string(step) +
           " is intact, and --resume continues from it after: mv " + kept + " " + last;
  };
  write_bytes(last, "damaged");
  CHECK(said() == last + ": is damaged: 7 bytes are too few for a safetensors file" + after(10));
  write_bytes(folder.file("checkpoint-10.safetensors"), "damaged");
  CHECK(has(said(), after(4)));
  fs::remove(last);
  CHECK(said() == folder.path() + ": there is no checkpoint to resume from" + after(4));
  fs::rename(folder.file("checkpoint-4.safetensors"), last);
  CHECK(folder.checkpoint_state().at("step") == 4);
  write_bytes(last, "damaged");
  CHECK(has(said(), "; try a copy of it, or a new run --from "));
}

TEST_CASE("a run's JSON that is damaged, or continues after its end, is refused with its file") {
  using namespace std::string_literals;
  const TemporaryFolder temporary;
  const RunFolder folder(temporary.file(""));
  const auto said = [&](const std::string& config) {
    write_bytes(folder.file("config.json"), config);
    return message_of<CheckpointError>([&] { folder.config(); });
  };
  CHECK(said("{}") == "nothing was thrown");
  CHECK(has(said("{"), "config.json is not JSON: "));
  CHECK(has(said("{}\0 "s), "config.json is not JSON: it has a NUL at byte"));
  CHECK(has(said(R"({"seed": 1, "seed": 2})"), "config.json has \"seed\" twice"));
  const auto state = [&](const std::string& text) {
    save_safetensors(folder.file("checkpoint.safetensors"), {}, {{"state", text}});
    return message_of<CheckpointError>([&] { folder.checkpoint_state(); });
  };
  CHECK(state("{}") == "nothing was thrown");
  CHECK(has(state("{}\0{}"s), "checkpoint.safetensors: the state is not JSON: it has a NUL at byte"));
  CHECK(has(state(R"({"step": 1, "step": 2})"), "checkpoint.safetensors: the state has \"step\" twice"));
  write_bytes(folder.file("metrics.jsonl"), "{\"step\":1}\n{\"step\":2}\0\n{\"step\":9}\n{\"st"s);
  folder.cut_metrics(2);
  CHECK(read_bytes(folder.file("metrics.jsonl")) == "{\"step\":1}\n");  // intact lines up to step 2
  for (int step = 1; step <= 9; ++step)
    folder.append_metrics({{"step", step}, {"validation_loss", step}, {"best", step == 1}});
  for (const Json& line : {Json{{"best_loss", 1}}, Json{{"step", 10}, {"bad_step", "the loss is nan"}},
                           Json{{"step", 10}}, Json{{"step", 11}, {"elapsed", nullptr}}})
    folder.append_metrics(line);
  CHECK(folder.elapsed() == 0);
  const std::vector<Json> few = folder.metric_lines(1);
  REQUIRE(few.size() == 5);  // the best validation, the last one, and likewise of other lines; a bad step
  CHECK(few[0].at("step") == 1);
  CHECK(few[2].at("best_loss") == 1);
  fs::remove(folder.file("metrics.jsonl"));
  fs::create_directory(folder.file("metrics.jsonl"));
  CHECK(
      has(message_of<DataError>([&] { folder.cut_metrics(2); }), "metrics.jsonl: cannot be read: Is a dir"));
}
