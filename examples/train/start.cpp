#include <tapeformer/autograd/communication/mpi.h>
#include <tapeformer/autograd/communication/nccl.h>
#include <tapeformer/autograd/config/json.h>
#include <tapeformer/autograd/device.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/autograd/kernels/matmul.h>
#include <tapeformer/autograd/system/threads.h>
#include <tapeformer/examples/shared/ranks.h>
#include <tapeformer/examples/shared/summary.h>
#include <tapeformer/examples/train/run.h>
#include <tapeformer/examples/train/start.h>

#include <algorithm>

namespace tapeformer {
namespace {

/// A task with the control's ranks, whose model has been set up by `compute`; between GPUs the ranks then
/// communicate by NCCL.
std::unique_ptr<TrainingTask> made(const MakeTask& make_task, TrainingControl& control, Compute& compute,
                                   const Json* checkpoint, Progress& progress) {
  if (control.ranks->rank() > 0) progress.be_silent();
  if (*kernels::gemm_warning() != 0) progress.log(std::string("note: ") + kernels::gemm_warning());
  if (control.ranks->size() > 1)
    progress.log(number_of(control.ranks->size(), "process", "processes") + " share each batch");
  const std::string note = share_machine(*control.ranks, compute);
  use_threads(static_cast<int>(compute.threads));
  if (!note.empty()) progress.log(note);
  std::unique_ptr<TrainingTask> task;
  first_rank_first(*control.ranks, [&] { task = make_task(checkpoint, progress); });
  const std::vector<Parameter> parameters = task->model().parameters();
  freeze(parameters, task->options().freeze);
  Index frozen = 0;
  for (const Parameter& parameter : parameters)
    frozen += parameter.trainable() ? 0 : parameter.value().elements();
  if (frozen > 0) progress.log(count_text(frozen) + " of the parameters are frozen");
  Json state;
  task->save_state(state);
  state["device"] = compute.device.is_cuda() ? "cuda" : "cpu";
  state["precision"] = compute.precision;
  state["shard_optimizer"] = control.shard_optimizer;
  require_same_training(*control.ranks, state);
  const double limit = 60 * control.collective_minutes;
  limit_collectives(limit);
  if (compute.device.is_cuda() && control.ranks->size() > 1)
    control.ranks = nccl_communicator(control.ranks, compute.device.index, limit);
  if (control.profile > 0 && compute.device.is_cuda()) {
    throw Error(
        "--profile times operations on the CPU, which only queues those of a GPU; try --device cpu, or run "
        "the program under NVIDIA's nsys profile");
  }
  compute.apply(task->model());
  if (compute.device.is_cuda()) progress.log(compute.text());
  task->set_ranks(control.ranks);
  return task;
}

int show_summary(TrainingTask& task) {
  if (task.ranks().rank() == 0) print("{}", task.summary());
  return kExitSuccess;
}

}  // namespace

void Validation::add_expert_shares(const LayerRecord& record,
                                   const std::function<std::string(Index router)>& layer) {
  double least = 1, most = 0;
  for (std::size_t router = 0; router < record.shares.size(); ++router) {
    const Tensor shares = record.shares[router].to(Device::cpu());
    for (Index e = 0; e < shares.elements(); ++e) {
      further.emplace_back(format("expert_share.{}.{}", layer(static_cast<Index>(router)), e), shares.at(e));
      least = std::min(least, shares.at(e)), most = std::max(most, shares.at(e));
    }
  }
  remark += format(", experts with {:.1f} to {:.1f} % of the choices", 100 * least, 100 * most);
}

std::string TrainingTask::summary() { return parameters_text(model()); }
Json TrainingTask::conclude(Progress&) { return Json::object(); }
Json TrainingTask::attention_example() { return {}; }

int start_training(const RunFolder& folder, TrainingControl control, const MakeTask& make_task) {
  folder.refuse_if_used();
  const PhaseClock clock;
  Progress progress;
  Compute compute = control.compute.chosen();
  const auto task = made(make_task, control, compute, nullptr, progress);
  if (control.summary) return show_summary(*task);
  if (control.dry_run) {
    Session session(folder, control, *task, progress, clock, compute);
    dry_run(session, [&](const std::string& line) {
      progress.clear();
      print("{}\n", line);
      std::fflush(stdout);
    });
    return kExitSuccess;
  }
  if (const std::string exports = task->exports(); !exports.empty()) progress.log("export: " + exports);
  TimePlan plan;
  if (task->options().time_budget > 0) {
    Session trial(folder, control, *task, progress, clock, compute);
    plan = fit_time_budget(trial);
  }
  Session session(folder, control, *task, progress, clock, compute);
  TrainingRun run(session, plan);
  run.checkpointer.start();
  return run.run();
}

int resume_training(const RunFolder& folder, TrainingControl control, const MakeTask& make_task) {
  const PhaseClock clock;
  Progress progress;
  std::unique_ptr<TrainingTask> task;
  std::optional<Session> session;
  std::optional<TrainingRun> run;
  Json checkpoint = folder.checkpoint_state();
  try {
    Index steps_before = 0;
    if (control.steps != 0) {
      const Index step = checkpoint.at("step").get<Index>();
      if (control.steps <= step) {
        throw Error(format("--steps must be above {}, the step that the run has reached; got {}", step,
                           control.steps));
      }
      Json& steps = checkpoint.at("options").at("steps");
      steps_before = steps.get<Index>();
      steps = control.steps;
    }
    Compute compute = control.compute.chosen(checkpoint.value("precision", "f32"));
    const bool as_many = checkpoint.value("ranks", 1) == control.ranks->size();
    if (compute.threads == 0 && as_many) compute.threads = checkpoint.at("threads").get<Index>();
    task = made(make_task, control, compute, &checkpoint, progress);
    if (control.summary) return show_summary(*task);
    task->options().check();  // an earlier version may have had other choices
    session.emplace(folder, control, *task, progress, clock, compute);
    run.emplace(*session).checkpointer.resume(checkpoint, steps_before);
  } catch (const Json::exception& error) {
    folder.refuse_state(reason_of(error));
  }
  return run->run();
}

}  // namespace tapeformer
