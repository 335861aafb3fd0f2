// Single operations at the sizes that training has: time, rate, and how near that is to what the machine can do.
// One line of JSON a case: median milliseconds of a call, GFLOP/s of its products, GB/s of what it must read and
// write, and its share: the least time that products at the machine's peak, or a sum over as many bytes, would
// take, divided by the time. Operands stay where the call before left them, in the caches if they fit.
// Usage: bench_ops [--list] [--filter TEXT] [--dtype f32|f64] [--seconds S] [CASE...]
//        a CASE is an operation and its sizes, such as "linear_forward 256 768 3072"; without one, those of --list
//        bench_ops --ask  reads cases from its input, a line each, and answers each at once
#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/kernels/dropout.h>
#include <tapeformer/autograd/ops/attention.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/embedding.h>
#include <tapeformer/autograd/ops/loss.h>
#include <tapeformer/autograd/ops/matmul.h>
#include <tapeformer/autograd/ops/normalization.h>
#include <tapeformer/autograd/ops/softmax.h>
#include <tapeformer/autograd/random.h>
#include <tapeformer/autograd/tape.h>
#include <tapeformer/optim/adamw.h>
#include <tapeformer/optim/clip.h>
#include <tapeformer/tests/bench/bandwidth.h>
#include <tapeformer/tests/bench/clock.h>
#include <tapeformer/tests/bench/peak.h>

#include <CLI/CLI.hpp>

#include <omp.h>

#include <cstdio>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>

using namespace tapeformer;

namespace {

using Sizes = std::vector<Index>;

/// What one call does, and what it has to compute and to move at least.
struct Work {
  double flops = 0, numbers = 0;  // numbers: read and written
  std::function<void()> run;
  bool in_place = false;  // nothing is written that was not read
};

struct Operation {
  const char* sizes;  // their names
  std::function<Work(const Sizes&, DType)> make;
};

Tensor random_tensor(const Shape& shape, DType type) {
  static Generator random(1);
  const Tensor x = Tensor::empty(shape, type);
  random.fill_uniform(x, -1, 1);
  return x;
}

Tensor random_ids(Index count, Index end) {
  Generator random(2);
  const Tensor ids = Tensor::empty({count}, DType::i32);
  for (Index i = 0; i < count; ++i)
    ids.data<std::int32_t>()[i] = static_cast<std::int32_t>(random.below(end));
  return ids;
}

using Function = std::function<Tensor()>;

/// `f` as training runs it, recorded on a tape that watches `of`.
std::function<void()> forward(const Function& f, const std::vector<Tensor>& of) {
  return [=] {
    Tape tape;
    for (const Tensor& x : of) tape.watch(x);
    f();
  };
}

/// The gradients of `f` with respect to `of` alone, as often as one likes.
std::function<void()> backward(const Function& f, const std::vector<Tensor>& of) {
  const auto tape = std::make_shared<Tape>();
  for (const Tensor& x : of) tape->watch(x);
  const Tensor y = f();
  const Tensor dy = y.rank() == 0 ? Tensor() : random_tensor(y.shape(), y.dtype());
  return [=] { tape->gradients(y, of, dy); };
}

enum class Pass { forward, backward };

std::function<void()> pass(Pass which, const Function& f, const std::vector<Tensor>& of) {
  return which == Pass::forward ? forward(f, of) : backward(f, of);
}

double product(const Sizes& n) {
  double result = 1;
  for (const Index size : n) result *= static_cast<double>(size);
  return result;
}

/// y [M, N] = x [M, K] w [N, K]^T + b: itself, or the gradient of x, or that of w.
Operation linear_operation(const std::string& which) {
  return {"M K N", [=](const Sizes& n, DType type) {
            const Tensor x = random_tensor({n[0], n[1]}, type), w = random_tensor({n[2], n[1]}, type),
                         b = random_tensor({n[2]}, type);
            const Function f = [=] { return linear(x, w, which == "forward" ? b : Tensor()); };
            const double numbers = static_cast<double>(n[0] * n[1] + n[1] * n[2] + n[0] * n[2]);
            return Work{2 * product(n), numbers,
                        which == "forward" ? forward(f, {x, w, b}) : backward(f, {which == "dgrad" ? x : w})};
          }};
}

/// An operation on one tensor that reads and writes so many numbers for each of its own.
Operation map_operation(const char* sizes, Pass which, double numbers, Tensor (*f)(const Tensor&)) {
  return {sizes, [=](const Sizes& n, DType type) {
            const Tensor x = random_tensor(n.size() == 1 ? Shape{n[0]} : Shape{n[0], n[1]}, type);
            return Work{0, numbers * product(n), pass(which, [=] { return f(x); }, {x})};
          }};
}

Operation layer_norm_operation(Pass which) {
  return {"ROWS N", [=](const Sizes& n, DType type) {
            const Tensor x = random_tensor({n[0], n[1]}, type), w = random_tensor({n[1]}, type),
                         b = random_tensor({n[1]}, type);
            const Function f = [=] { return layer_norm(x, w, b); };
            return Work{0, (which == Pass::forward ? 2 : 3) * product(n), pass(which, f, {x, w, b})};
          }};
}

Operation cross_entropy_operation(Pass which) {
  return {"ROWS V", [=](const Sizes& n, DType type) {
            const Tensor x = random_tensor({n[0], n[1]}, type), ids = random_ids(n[0], n[1]);
            const Function f = [=] { return cross_entropy(x, ids); };
            return Work{0, (which == Pass::forward ? 1 : 2) * product(n), pass(which, f, {x}),
                        which == Pass::forward};
          }};
}

Operation embedding_operation(Pass which) {
  return {"COUNT V C", [=](const Sizes& n, DType type) {
            const Tensor table = random_tensor({n[1], n[2]}, type), ids = random_ids(n[0], n[1]);
            const double rows = static_cast<double>(n[0] * n[2]), all = static_cast<double>(n[1] * n[2]);
            const Function f = [=] { return embedding(table, ids); };
            return Work{0, which == Pass::forward ? 2 * rows : rows + all, pass(which, f, {table})};
          }};
}

/// Causal, on query, key and value side by side in one tensor, as layers have them.
Operation attention_operation(Pass which) {
  return {"B H T D", [=](const Sizes& n, DType type) {
            const Tensor packed = random_tensor({n[0], n[2], 3 * n[1] * n[3]}, type);
            const PackedHeads heads{n[1], n[1], n[3], n[3]};
            AttentionOptions options;
            options.causal = true;
            const Function f = [=] { return packed_attention(packed, heads, options); };
            const double flops = 2 * product(n) * static_cast<double>(n[2]), numbers = product(n);
            return which == Pass::forward ? Work{flops, 4 * numbers, forward(f, {packed})}
                                          : Work{2.5 * flops, 8 * numbers, backward(f, {packed})};
          }};
}

/// The parameters of nanoGPT's model, each with a gradient.
std::vector<Parameter> language_model_parameters(const Sizes& n, DType type) {
  const Index layers = n[0], width = n[1], vocabulary = n[2], context = n[3];
  std::vector<Parameter> parameters;
  const auto add_one = [&](const Shape& shape) {
    Parameter parameter(random_tensor(shape, type));
    parameter.state()->gradient = random_tensor(shape, type);
    parameter.state()->has_gradient = true;
    parameters.push_back(parameter);
  };
  for (const Shape& shape : {Shape{vocabulary, width}, Shape{context, width}, Shape{width}, Shape{width}})
    add_one(shape);
  for (Index layer = 0; layer < layers; ++layer) {
    for (const Index out : {3 * width, width, 4 * width}) add_one({out, width}), add_one({out});
    add_one({width, 4 * width});
    for (int i = 0; i < 5; ++i) add_one({width});
  }
  return parameters;
}

double count_of(const std::vector<Parameter>& parameters) {
  double count = 0;
  for (const Parameter& parameter : parameters) count += static_cast<double>(parameter.value().elements());
  return count;
}

Work adamw_step(const Sizes& n, DType type) {
  const auto optimizer = std::make_shared<AdamW>(language_model_parameters(n, type));
  return {0, 7 * count_of(optimizer->parameters()), [=] { optimizer->step(1e-4); }, true};
}

Work norm_of_gradients(const Sizes& n, DType type) {
  const std::vector<Parameter> parameters = language_model_parameters(n, type);
  return {0, count_of(parameters), [=] { gradient_norm(parameters); }, true};
}

Work residual_add(const Sizes& n, DType type) {
  const Tensor a = random_tensor({n[0]}, type), b = random_tensor({n[0]}, type);
  return {0, 3 * product(n), forward([=] { return a + b; }, {a, b})};
}

Work mask_making(const Sizes& n, DType type) {
  const Tensor mask = Tensor::empty({kernels::dropout_mask_words(n[0])}, DType::i32);
  const DropoutDraw draw = draw_dropout(0.2, {1, 2, 3});
  return {0, product(n) / 8 / static_cast<double>(bytes_of(type)), [=] {
            kernels::dropout_mask(kernels::Cpu{}, draw.stream, n[0], draw.dropped, mask.data<std::int32_t>());
          }};
}

Tensor dropped(const Tensor& x) { return dropout(x, 0.2, {1, 2, 3}); }
Tensor softmax_of_rows(const Tensor& x) { return softmax(x); }

const std::map<std::string, Operation>& operations() {
  constexpr Pass ahead = Pass::forward, back = Pass::backward;
  static const std::map<std::string, Operation> all{
      {"linear_forward", linear_operation("forward")},
      {"linear_dgrad", linear_operation("dgrad")},
      {"linear_wgrad", linear_operation("wgrad")},
      {"gelu_forward", map_operation("COUNT", ahead, 2, gelu)},
      {"gelu_backward", map_operation("COUNT", back, 3, gelu)},
      {"gelu_tanh_forward", map_operation("COUNT", ahead, 2, gelu_tanh)},
      {"gelu_tanh_backward", map_operation("COUNT", back, 3, gelu_tanh)},
      {"softmax_forward", map_operation("ROWS N", ahead, 2, softmax_of_rows)},
      {"softmax_backward", map_operation("ROWS N", back, 3, softmax_of_rows)},
      {"dropout_mask", {"COUNT", mask_making}},
      {"dropout_forward", map_operation("COUNT", ahead, 2, dropped)},
      {"dropout_backward", map_operation("COUNT", back, 2, dropped)},
      {"layer_norm_forward", layer_norm_operation(ahead)},
      {"layer_norm_backward", layer_norm_operation(back)},
      {"cross_entropy_forward", cross_entropy_operation(ahead)},
      {"cross_entropy_backward", cross_entropy_operation(back)},
      {"embedding_forward", embedding_operation(ahead)},
      {"embedding_backward", embedding_operation(back)},
      {"attention_forward", attention_operation(ahead)},
      {"attention_backward", attention_operation(back)},
      {"residual_add", {"COUNT", residual_add}},
      {"adamw_step", {"LAYERS C V T", adamw_step}},
      {"gradient_norm", {"LAYERS C V T", norm_of_gradients}},
  };
  return all;
}

/// The layers of babygpt (768 tokens of width 128), chargpt (2,048 of 384, batch 8), gpt2-124m (256 of 768) and
/// translate (2,048 of 256).
std::vector<std::string> usual_cases() {
  const auto with_passes = [](std::vector<std::string>& to, const std::string& operation,
                              const std::vector<const char*>& sizes) {
    for (const char* size : sizes)
      for (const char* which : {"_forward ", "_backward "}) to.push_back(operation + which + size);
  };
  std::vector<std::string> cases;
  for (const char* sizes : {"768 128 384", "768 128 128", "768 128 512", "768 512 128", "768 128 65",
                            "2048 384 1152", "2048 384 384", "2048 384 1536", "2048 1536 384", "256 768 2304",
                            "256 768 768", "256 768 3072", "256 3072 768", "256 768 50257", "2048 256 768",
                            "2048 256 256", "2048 256 512", "2048 512 256", "2048 256 8000"})
    for (const char* which : {"forward ", "dgrad ", "wgrad "})
      cases.push_back(std::string("linear_") + which + sizes);
  with_passes(cases, "attention", {"12 4 64 32", "8 6 256 64", "4 12 64 64", "128 8 16 32", "1 12 1024 64"});
  const std::vector<const char*> counts{"393216", "786432", "3145728", "12582912"};
  with_passes(cases, "gelu", counts);
  with_passes(cases, "gelu_tanh", counts);
  with_passes(cases, "softmax", {"3072 64", "12288 256", "256 8000"});
  with_passes(cases, "layer_norm", {"768 128", "2048 384", "16384 384", "256 768", "2048 256"});
  for (const char* count : {"98304", "786432", "6291456"}) {
    cases.push_back(std::string("residual_add ") + count);
    cases.push_back(std::string("dropout_mask ") + count);
    with_passes(cases, "dropout", {count});
  }
  with_passes(cases, "cross_entropy", {"768 65", "16384 65", "2048 8000", "256 50257"});
  with_passes(cases, "embedding", {"768 65 128", "2048 65 384", "2048 8000 256", "256 50257 768"});
  for (const char* operation : {"gradient_norm ", "adamw_step "})
    for (const char* model : {"4 128 65 64", "6 384 65 256", "12 768 50257 1024"})
      cases.push_back(std::string(operation) + model);
  return cases;
}

Work make(const std::string& name, DType type) {
  std::istringstream words(name);
  std::string operation;
  words >> operation;
  const auto found = operations().find(operation);
  if (found == operations().end()) throw Error("there is no operation " + operation + "; try --list");
  Sizes sizes;
  for (Index size = 0; words >> size;) sizes.push_back(size);
  const std::string expected = found->second.sizes;
  const bool all_positive = std::all_of(sizes.begin(), sizes.end(), [](Index n) { return n > 0; });
  if (!words.eof() || !all_positive ||
      std::count(expected.begin(), expected.end(), ' ') + 1 != static_cast<std::ptrdiff_t>(sizes.size()))
    throw Error(operation + " takes the sizes " + expected + "; got: " + name);
  return found->second.make(sizes, type);
}

/// Of a call, in seconds; short ones are timed several at a time.
struct Times {
  double median, best;
};

Times time_of(const Work& work, double seconds) {
  double begun = now();
  work.run();  // the pools grow
  work.run();
  begun = now();
  work.run();
  const auto calls = static_cast<int>(std::clamp(1e-4 / (now() - begun), 1.0, 100.0));
  std::vector<double> times;
  const double end = now() + seconds;
  while (times.size() < 5 || (now() < end && times.size() < 2000)) {
    begun = now();
    for (int call = 0; call < calls; ++call) work.run();
    times.push_back((now() - begun) / calls);
  }
  return {median(times), *std::min_element(times.begin(), times.end())};
}

void show(const std::string& name, DType type, double seconds) {
  const Work work = make(name, type);
  const Times times = time_of(work, seconds);
  const double took = times.median;
  const double bytes = work.numbers * static_cast<double>(bytes_of(type));
  static const double peak_f32 = peak_rate<float>(), peak_f64 = peak_rate<double>();
  const double computing = work.flops / (type == DType::f32 ? peak_f32 : peak_f64);
  const double moving = bytes / bandwidth(bytes, work.in_place), least = std::max(computing, moving);
  std::printf(
      "{\"table\": \"Single operations\", \"operation\": \"%s\", \"type\": \"%s\", \"threads\": %d, "
      "\"ms\": %.5g, \"GFLOP/s\": %.4g, \"GB/s\": %.4g, \"bound by\": \"%s\", \"share of the bound\": \"%.0f "
      "%%\", "
      "\"_best_ms\": %.5g, \"_least_ms\": %.5g}\n",
      name.c_str(), type == DType::f32 ? "f32" : "f64", omp_get_max_threads(), 1e3 * took,
      1e-9 * work.flops / took, 1e-9 * bytes / took, computing > moving ? "products" : "bytes",
      100 * least / took, 1e3 * times.best, 1e3 * least);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> cases;
  std::string filter;
  std::string type_name = "f32";
  double seconds = 0.3;
  bool lists = false, asks = false;
  CLI::App app("Times single operations.");
  app.add_option("cases", cases, "an operation and its sizes; the usual ones when there is none");
  app.add_option("--filter", filter, "only cases that contain this");
  app.add_option("--dtype", type_name)->check(CLI::IsMember({"f32", "f64"}));
  app.add_option("--seconds", seconds, "so long a case, or five times");
  app.add_flag("--list", lists, "the cases' names, and nothing else");
  app.add_flag("--ask", asks, "read cases from the input, and answer each at once");
  CLI11_PARSE(app, argc, argv);
  const DType type = type_name == "f32" ? DType::f32 : DType::f64;
  try {
    if (asks) {
      for (std::string name; std::getline(std::cin, name);) show(name, type, seconds);
      return 0;
    }
    for (const std::string& name : cases.empty() ? usual_cases() : cases) {
      if (name.find(filter) == std::string::npos) continue;
      if (lists) {
        std::printf("%s\n", name.c_str());
      } else {
        show(name, type, seconds);
      }
    }
  } catch (const Error& error) {
    std::fprintf(stderr, "bench_ops: %s\n", error.what());
    return 2;
  }
  return 0;
}
