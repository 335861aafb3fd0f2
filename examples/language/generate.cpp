#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/autograd/system/threads.h>
#include <tapeformer/data/tokenizers/utf8.h>
#include <tapeformer/examples/language/generate.h>
#include <tapeformer/examples/language/objective.h>
#include <tapeformer/examples/language/run.h>
#include <tapeformer/examples/shared/command_line.h>
#include <tapeformer/examples/shared/program.h>
#include <tapeformer/examples/shared/progress.h>
#include <tapeformer/nn/formats/family.h>

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <iterator>

namespace tapeformer {
namespace {

constexpr Index kSideBySide = 32;  // samples that share each step of the model

/// Standard input without a byte order mark and a last line end, such as echo's; empty for a terminal.
std::string prompt_from_input() {
  if (isatty(STDIN_FILENO) != 0) return {};
  std::string text{std::istreambuf_iterator<char>(std::cin), {}};
  if (std::ferror(stdin) != 0) throw DataError("standard input", 0, "cannot be read (is it a folder?)");
  if (text.compare(0, 3, "\xef\xbb\xbf") == 0) text.erase(0, 3);
  if (!text.empty() && text.back() == '\n') text.pop_back();
  if (!text.empty() && text.back() == '\r') text.pop_back();
  return text;
}

bool write_to_output(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0)
    return true;
  if (errno == EPIPE) {
    std::clearerr(stdout);
    return false;
  }
  throw DataError("standard output", 0, std::string("cannot be written: ") + std::strerror(errno));
}

/// The ids before the first new one: the begin token, if there is one, and the prompt's.
TokenIds prompt_ids(const Tokenizer& tokenizer, const std::string& prompt) {
  TokenIds ids;
  if (tokenizer.begin()) ids.push_back(*tokenizer.begin());
  tokenizer.encode(prompt, ids);
  if (!ids.empty()) return ids;
  if (tokenizer.end()) return {*tokenizer.end()};  // the end of one text begins the next
  try {
    return tokenizer.encode("\n");
  } catch (const DataError&) {
    return {0};  // the tokenizer has no line end
  }
}

/// The text with an encoder's likeliest tokens in place of its mask tokens.
/// Throws: Error if there are none
std::string filled(const LanguageRun& run, const std::string& text) {
  const Tokenizer& tokenizer = *run.tokenizer;
  const std::int32_t mask = mask_token(tokenizer);
  TokenIds ids = prompt_ids(tokenizer, text);
  if (tokenizer.begin() && tokenizer.end()) ids.push_back(*tokenizer.end());
  if (std::find(ids.begin(), ids.end(), mask) == ids.end()) run.model.config().require_causal();
  const Tensor ids_bt = Tensor::from<std::int32_t>(ids, {1, static_cast<Index>(ids.size())});
  const Tensor logits_btv = run.model(ids_bt.to(run.model.device())).to(DType::f32).to(Device::cpu());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const float* const logits = logits_btv.data<float>() + static_cast<Index>(i) * logits_btv.size(2);
    if (ids[i] == mask)
      ids[i] = static_cast<std::int32_t>(likeliest(logits, tokenizer.vocabulary_size(), 1)[0]);
  }
  return tokenizer.decode(ids) + "\n";
}

}  // namespace

void GenerateOptions::add_to(const Command& command) {
  command.required("--run", run, "a run folder, or a checkpoint folder of transformers: " + family_titles());
  command.option(
      "--prompt", prompt,
      "the text to continue, or of an encoder to fill where it has mask tokens, with the likeliest ones; "
      "without it, standard input, less a byte order mark and a final line end. "
      "With learned or sinusoidal positions only the last tokens that fit into the context are seen");
  command.option("--max-tokens", generation.max_tokens,
                 "the most new tokens per sample; with learned or sinusoidal positions, whenever the context "
                 "is full, the older half of the text in it is forgotten",
                 kPositive);
  command.option(
      "--samples", generation.samples,
      "number of texts, computed side by side and written one after the other, the first as it is drawn",
      kPositive);
  command.option("--stop", stops, "end a sample before this text; may be repeated")
      .one_at_a_time()
      .not_empty();
  const CommandOption temperature =
      command.option("--temperature", generation.sampling.temperature,
                     "below 1 favours likely tokens; 0 takes the likeliest", kNotNegative);
  command.flag("--greedy", greedy, "always take the likeliest token").excludes(temperature);
  command.option("--top-k", generation.sampling.top_k, "draw among this many likeliest tokens; 0 for all",
                 kNotNegative);
  command.option("--top-p", generation.sampling.top_p,
                 "draw among the likeliest tokens that together have this probability; above 0, 1 for all",
                 kPositiveShare);
  command.option("--min-p", generation.sampling.min_p,
                 "draw among tokens with at least this share of the highest probability; 0 to 1", kShare);
  constexpr NumberRule kPenalty{"must be from 1e-6 to 1e6", [](double x) { return x >= 1e-6 && x <= 1e6; }};
  command.option("--repetition-penalty", generation.sampling.repetition_penalty,
                 "above 1, tokens that the text already contains become less likely; 1e-6 to 1e6", kPenalty);
  command.option("--seed", generation.sampling.seed, "seed of the random draws");
  command
      .option("--cache", cache, "how keys and values of earlier tokens are kept: contiguous, paged or none")
      .one_of({"contiguous", "paged", "none"});
  command.flag("--only-new", only_new, "do not repeat the prompt before its continuation");
  add_average_option(command, average);
  command.option("--tokenizer-model", tokenizer_model, "a tokenizer to use instead of the folder's own")
      .not_empty();
  compute.add_to(command);
}

void GenerateOptions::refuse_ignored(const Command& command) const {
  if (greedy || generation.sampling.temperature == 0)
    command.refuse({"--top-k", "--top-p", "--min-p", "--seed"},
                   greedy ? "with --greedy" : "at temperature 0");
}

SampleWriter::SampleWriter(const Tokenizer& tokenizer, Index samples, const std::vector<std::string>& stops,
                           std::string prompt, bool start, Write write)
    : tokenizer_(tokenizer),
      stops_(stops),
      prompt_(std::move(prompt)),
      start_(start),
      write_(std::move(write)) {
  begin(samples);
}

void SampleWriter::begin(Index samples) {
  samples_.clear();
  shown_ = 0;
  for (Index i = 0; i < samples; ++i) samples_.push_back({TextStream(tokenizer_, stops_), {}, 0, false});
}

void SampleWriter::next(Index samples) {
  for (Sample& sample : samples_) end(sample);
  show();
  put(kSeparator + prompt_);
  begin(samples);
}

void SampleWriter::put(std::string_view text) {
  if (text.empty() || closed_) return;
  last_ = text.back();
  closed_ = !write_(text);
}

bool SampleWriter::add(Index index, std::int32_t token) {
  Sample& sample = samples_[static_cast<std::size_t>(index)];
  const bool first = start_ && sample.tokens == 0;
  ++sample.tokens;
  ++tokens_;
  // Ids beyond the vocabulary are rows that round up a model's sizes.
  std::string text = token < tokenizer_.vocabulary_size() ? sample.stream.add(token) : std::string();
  if (first && !text.empty() && text[0] == ' ' && tokenizer_.decode({token}) != tokenizer_.bytes_of(token))
    text.erase(0, 1);
  sample.waiting += text;
  if (sample.stream.stopped()) end(sample);
  // All samples advance together, so one that is two tokens behind has ended.
  for (Sample& other : samples_)
    if (other.tokens + 1 < sample.tokens) end(other);
  show();
  return !sample.ended && !closed_;
}

void SampleWriter::end(Sample& sample) {
  if (sample.ended) return;
  sample.ended = true;
  sample.waiting += sample.stream.finish();
}

void SampleWriter::show() {
  if (!begun_) put(prompt_);
  begun_ = true;
  while (shown_ < samples_.size()) {
    Sample& sample = samples_[shown_];
    put(sample.waiting);
    sample.waiting.clear();
    if (!sample.ended || shown_ + 1 == samples_.size()) return;
    ++shown_;
    put(kSeparator + prompt_);
  }
}

void SampleWriter::finish() {
  for (Sample& sample : samples_) end(sample);
  show();
  if (last_ != '\n') put("\n");
}

int generate(const GenerateOptions& options, const Command& command) {
  const std::string prompt = options.prompt ? *options.prompt : prompt_from_input();
  if (const std::size_t bad = find_no_text(prompt); bad != std::string::npos)
    throw Error(no_text_message(prompt[bad], static_cast<Index>(bad) + 1, "prompt"));
  remember_interrupts();
  std::signal(SIGPIPE, SIG_IGN);  // the reader of a pipe may stop early
  const Compute compute = options.compute.chosen();
  use_threads(static_cast<int>(compute.threads));
  LanguageRun run = LanguageRun::load(options.run, options.average, options.tokenizer_model);
  compute.apply(run.model);
  if (run.model.config().bidirectional) {
    command.refuse_all_but(
        {"--run", "--prompt", "--average", "--tokenizer-model", "--device", "--threads", "--precision"},
        "with an encoder, which fills mask tokens");
    write_to_output(filled(run, prompt));
    return kExitSuccess;
  }
  TextGenerationConfig config = options.generation;
  if (options.greedy) config.sampling.temperature = 0;
  config.cache.reset();
  if (options.cache != "none") config.cache.emplace().kind = kind_named<CacheKind>(options.cache);
  config.ends = run.tokenizer->ends();
  config.graphs = compute.graphs;
  const TokenIds ids = prompt_ids(*run.tokenizer, prompt);
  const Index samples = options.generation.samples;
  SampleWriter writer(*run.tokenizer, std::min(kSideBySide, samples), options.stops,
                      options.only_new ? "" : prompt, prompt.empty(), write_to_output);
  const double begun = now_seconds();
  for (Index first = 0; first < samples && !writer.closed() && !interrupted(); first += config.samples) {
    config.samples = std::min(kSideBySide, samples - first);
    if (first > 0) writer.next(config.samples);
    config.sampling.stream = static_cast<std::uint64_t>(first);
    generate_text(run.model, ids, config, [&](Index sample, std::int32_t token) {
      return writer.add(sample, token) && !interrupted();
    });
  }
  const double seconds = now_seconds() - begun;
  writer.finish();
  if (!writer.closed()) {
    Progress progress;
    progress.log(format("{} after a prompt of {} in {:.2f} s: {} tokens/s{}",
                        number_of(writer.tokens(), "token"), ids.size(), seconds,
                        count_text(static_cast<double>(writer.tokens()) / seconds),
                        interrupted() ? "; interrupted" : ""));
    if (compute.device.is_cuda()) progress.log(compute.usage_text());
  }
  return interrupted() ? kExitInterrupted : kExitSuccess;
}

}  // namespace tapeformer
