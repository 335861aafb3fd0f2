#pragma once

#include <tapeformer/autograd/config/config_field.h>
#include <tapeformer/autograd/shape.h>

#include <memory>

namespace CLI {  // CLI11, which command_line.cpp alone includes: it takes four seconds to compile
class App;
class Option;
}  // namespace CLI

namespace tapeformer {

/// An option, flag or positional argument of a command; copies refer to the same one.
class CommandOption {
 public:
  explicit CommandOption(CLI::Option* option) : option_(option) {}
  CommandOption required() const;
  /// Sets its heading in --help.
  CommandOption group(const std::string& name) const;
  CommandOption one_of(const std::vector<std::string>& words) const;
  CommandOption not_empty() const;
  /// For a list: each occurrence takes one value.
  CommandOption one_at_a_time() const;
  /// Makes its value optional: if given without one, it is `value`; --help calls the value `type`.
  CommandOption optional_value(const std::string& value, const std::string& type) const;
  CommandOption needs(CommandOption other) const;
  CommandOption excludes(CommandOption other) const;
  bool given() const;

 private:
  CLI::Option* option_;
};

/// The number in an option's text, read strictly: CLI11 would wrap a negative number, clamp one that is too
/// large, and accept nan and inf.
/// Throws: Error naming the option and its text
template <class Number>
Number parsed(const std::string& name, const NumberRule& rule, const std::string& text);

/// A program or one of its commands, to which options are added; copies refer to the same one. Names with
/// dashes are options ("--width"), others positional arguments. Fields, which hold defaults, must outlive it.
class Command {
 public:
  explicit Command(CLI::App* app) : app_(app) {}

  /// An option of type string, int, Index, std::uint64_t, double, an optional one of these, or a list of
  /// strings. Given several times, the last one counts, but lists grow. --help shows the field's value.
  template <class Member>
  CommandOption option(const std::string& name, Member& field, const std::string& help = {},
                       const NumberRule& rule = kAnyNumber) const {
    using Value = typename detail::Unwrapped<Member>::Type;
    return value<Value>(
        name, field, [&field](const Value& given) { field = given; }, help, rule);
  }
  /// An option that must be given, and whose text must not be empty.
  CommandOption required(const std::string& name, std::string& field, const std::string& help) const {
    return option(name, field, help).required().not_empty();
  }
  /// An option, or a flag for bool, whose value is passed to `set`; --help shows `now`.
  template <class Value>
  CommandOption value(const std::string& name, const std::optional<Value>& now,
                      const std::function<void(const Value&)>& set, const std::string& help,
                      const NumberRule& rule = kAnyNumber) const {
    if constexpr (std::is_same_v<Value, bool>) {
      return add_flag(name, set, help + (now.value_or(false) ? " [on]" : ""));
    } else if constexpr (std::is_same_v<Value, std::vector<std::string>>) {
      return add_list(name, set, help);
    } else if constexpr (std::is_same_v<Value, std::string>) {
      return add(name, now.value_or(""), "TEXT", set, help);
    } else {
      // A rule of whole numbers refuses both halves, other rules at most one of them.
      const bool is_whole = std::is_integral_v<Value> || !(rule.holds(0.5) || rule.holds(1.5));
      return add(
          name, now ? value_text(*now) : "", is_whole ? "INT" : "FLOAT",
          [=](const std::string& text) { set(parsed<Value>(name, rule, text)); }, help);
    }
  }
  /// A flag that sets `field`; with the name "--name,!--no-name" also one that clears it.
  CommandOption flag(const std::string& name, bool& field, const std::string& help = {}) const;
  /// A flag that clears `field`.
  CommandOption negative_flag(const std::string& name, bool& field, const std::string& help) const;
  /// Sets the end of --help.
  void footer(const std::string& text) const;

  /// The option with that name, which must exist.
  CommandOption find(const std::string& name) const;
  /// The names of the options in these groups that were given.
  std::vector<std::string> given_of(std::initializer_list<const char*> groups) const;
  /// Whether there is an option with that name in one of these groups.
  bool has(const std::string& name, std::initializer_list<const char*> groups) const;
  /// Throws: Error "NAME has no effect WHEN; leave it out" if one of these options was given
  void refuse(std::initializer_list<const char*> names, const std::string& when) const;
  /// Throws: the error of refuse() if any option but these was given
  void refuse_all_but(std::initializer_list<const char*> names, const std::string& when) const;
  /// True if this command was chosen.
  bool chosen() const;
  std::string help() const;

 protected:
  CLI::App* app_;

 private:
  CommandOption add(const std::string& name, const std::string& now, const char* type,
                    const std::function<void(const std::string&)>& set, const std::string& help) const;
  CommandOption add_flag(const std::string& name, const std::function<void(const bool&)>& set,
                         const std::string& help) const;
  CommandOption add_list(const std::string& name,
                         const std::function<void(const std::vector<std::string>&)>& set,
                         const std::string& help) const;
};

/// The command line of a program. It owns what Command and CommandOption refer to.
class CommandLine : public Command {
 public:
  explicit CommandLine(const std::string& description = {});
  ~CommandLine();

  /// The work of a command, which returns the exit code.
  using Body = std::function<int(const Command& command)>;
  /// Adds a command; a program with commands requires one of them.
  Command command(const std::string& name, const std::string& help = {}, Body body = {});
  /// Adds --version, which prints `text`.
  void version(const std::string& text) const;

  /// Parses the arguments; prints help or version and returns false if they ask for that.
  /// Throws: Error with one line on the mistake, which suggests another option for an unknown one
  bool read(int argc, const char* const* argv) const;
  /// Runs the chosen command; returns the exit code.
  int execute() const;

 private:
  std::unique_ptr<CLI::App> owned_;
  std::vector<std::pair<Command, Body>> commands_;
};

/// Adds a command with options that live as long as the line. It refuses those without effect, passes the
/// others to `body`, with the command if that wants it, and returns its exit code.
template <class Options, class Body>
void add_command(CommandLine& line, const std::string& name, const std::string& help, Body body) {
  const auto options = std::make_shared<Options>();
  options->add_to(line.command(name, help, [options, body](const Command& command) {
    options->refuse_ignored(command);
    if constexpr (std::is_invocable_v<Body, const Options&>)
      return body(*options);
    else
      return body(*options, command);
  }));
}

/// The command line, quoted for a shell.
std::string command_text(const std::vector<std::string>& words);

/// Adds --average to a command that uses a model; 0 means the best weights.
void add_average_option(const Command& command, Index& average);

}  // namespace tapeformer
