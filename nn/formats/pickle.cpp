#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/nn/formats/little_endian.h>
#include <tapeformer/nn/formats/pickle.h>

#include <algorithm>
#include <map>

namespace tapeformer {
namespace {

using Kind = PickleValue::Kind;

constexpr int kMostDepth = 8;
constexpr std::size_t kMostItems = 64;        // of a tuple, as many as PyTorch's tensors have axes
constexpr std::size_t kMostValues = 1 << 21;  // of 100 bytes each; a tensor has some 15

/// The machine that runs a program: a stack, marks on it, and a memo of values.
class Unpickler {
 public:
  Unpickler(std::string_view bytes, std::size_t at) : bytes_(bytes) { result_.end = at; }

  Pickle run() {
    while (step(take(1)[0])) {
    }
    return std::move(result_);
  }

 private:
  /// Returns false at the end of the program.
  bool step(char code) {
    switch (code) {
      case '\x80': take(1); break;  // the version
      case '.': return false;
      case '(': marks_.push_back(stack_.size()); break;
      case 'N':
      case '\x88':
      case '\x89':
      case '}':
      case ']': push({}); break;
      case 'K': push_number(unsigned_number(1)); break;
      case 'M': push_number(unsigned_number(2)); break;
      case 'J': push_number(static_cast<std::int32_t>(unsigned_number(4))); break;
      case '\x8a': push_long(); break;
      case 'G': take(8), push({Kind::number}); break;
      case 'X': push({Kind::text, 0, std::string(take(unsigned_number(4)))}); break;
      case 'c': push_name(line()); break;
      case 'q': memo_[unsigned_number(1)] = top(); break;
      case 'r': memo_[unsigned_number(4)] = top(); break;
      case 'h': recall(unsigned_number(1)); break;
      case 'j': recall(unsigned_number(4)); break;
      case ')': push_tuple({}); break;
      case '\x85': push_tuple(pop(1)); break;
      case '\x86': push_tuple(pop(2)); break;
      case '\x87': push_tuple(pop(3)); break;
      case 't': push_tuple(pop_to_mark()); break;
      case 'Q': result_.objects.push_back(top()); break;
      case 'R': call(); break;
      case 'a': list(pop(1)); break;
      case 'e': list(pop_to_mark()); break;
      case 's': put_pairs(pop(2)); break;
      case 'u': put_pairs(pop_to_mark()); break;
      case 'b': pop(1); break;  // attributes
      default:
        throw CheckpointError(
            format("has the unknown instruction {}", Index{static_cast<unsigned char>(code)}));
    }
    return true;
  }

  std::string_view take(std::uint64_t count) {
    if (count > bytes_.size() - result_.end) throw CheckpointError("is cut short");
    const std::string_view taken = bytes_.substr(result_.end, count);
    result_.end += count;
    return taken;
  }
  std::uint64_t unsigned_number(std::size_t bytes) {
    return number_at<std::uint64_t>(std::string(take(bytes)).append(8, '\0'), 0);
  }

  void push(PickleValue value) {
    if (++values_ > kMostValues) throw CheckpointError("has too many values");
    stack_.push_back(std::make_shared<const PickleValue>(std::move(value)));
  }
  void push_number(std::uint64_t number) { push({Kind::number, static_cast<Index>(number)}); }
  void push_long() {
    const std::uint64_t bytes = unsigned_number(1);
    std::string number(take(bytes));
    const bool fits = bytes <= 8 && (bytes == 0 || (number.back() & '\x80') == 0);
    push_number(fits ? number_at<std::uint64_t>(number.append(8, '\0'), 0) : 0);
  }
  void push_name(const std::string& module) { push({Kind::name, 0, module + " " + line()}); }
  std::string line() {
    const std::size_t end = bytes_.find('\n', result_.end);
    if (end == bytes_.npos) throw CheckpointError("is cut short");
    std::string text(take(end - result_.end));
    take(1);
    return text;
  }
  void push_tuple(std::vector<PickleValuePtr> items) {
    PickleValue tuple{Kind::tuple};
    for (const PickleValuePtr& item : items) tuple.depth = std::max(tuple.depth, item->depth + 1);
    if (tuple.depth > kMostDepth) throw CheckpointError("has tuples nested too deeply");
    if (items.size() > kMostItems) throw CheckpointError("has a tuple of too many values");
    tuple.items = std::move(items);
    push(std::move(tuple));
  }

  const PickleValuePtr& top() const {
    if (stack_.size() <= (marks_.empty() ? 0 : marks_.back())) throw CheckpointError("lacks a value");
    return stack_.back();
  }
  std::vector<PickleValuePtr> pop(std::size_t count) {
    if (stack_.size() < count + (marks_.empty() ? 0 : marks_.back())) throw CheckpointError("lacks a value");
    const auto first = stack_.end() - static_cast<Index>(count);
    std::vector<PickleValuePtr> values(first, stack_.end());
    stack_.erase(first, stack_.end());
    return values;
  }
  std::vector<PickleValuePtr> pop_to_mark() {
    if (marks_.empty()) throw CheckpointError("lacks a mark");
    std::vector<PickleValuePtr> values = pop(stack_.size() - marks_.back());
    marks_.pop_back();
    return values;
  }
  void recall(std::uint64_t number) {
    const auto found = memo_.find(number);
    if (found == memo_.end()) throw CheckpointError("lacks a value");
    stack_.push_back(found->second);
  }

  void call() {
    const std::vector<PickleValuePtr> called = pop(2);
    const PickleValuePtr &function = called[0], &arguments = called[1];
    const std::string& name = function->text;
    if (function->kind != Kind::name || arguments->kind != Kind::tuple) throw CheckpointError("is damaged");
    if (name == "collections OrderedDict") return push({});
    if (name == "torch._utils _rebuild_parameter" && !arguments->items.empty())
      return stack_.push_back(arguments->items[0]);
    if (name != "torch._utils _rebuild_tensor_v2")
      throw CheckpointError("has an object of " + name + ", and only dictionaries of tensors are read");
    push({Kind::tensor, 0, "", arguments->items, arguments->depth});
  }
  void list(std::vector<PickleValuePtr> items) {
    top();
    result_.listed.insert(result_.listed.end(), items.begin(), items.end());
  }
  /// Keeps the tensors among alternating keys and values.
  void put_pairs(const std::vector<PickleValuePtr>& pairs) {
    top();
    for (std::size_t i = 0; i + 1 < pairs.size(); i += 2)
      if (pairs[i + 1]->kind == Kind::tensor) result_.tensors.emplace_back(pairs[i], pairs[i + 1]);
  }

  std::string_view bytes_;
  Pickle result_;
  std::vector<PickleValuePtr> stack_;
  std::vector<std::size_t> marks_;  // sizes of the stack
  std::map<std::uint64_t, PickleValuePtr> memo_;
  std::size_t values_ = 0;  // pushed so far
};

}  // namespace

Pickle Pickle::read(std::string_view bytes, std::size_t at) { return Unpickler(bytes, at).run(); }

}  // namespace tapeformer
