#pragma once

#include <functional>

namespace tapeformer {

/// Exit codes that all programs share.
constexpr int kExitSuccess = 0, kExitBadInput = 2, kExitInterrupted = 130;

/// Runs a program's body, on threads that leave other programs their share (autograd/threads.h). Call it
/// first thing in main. What the body throws becomes one clear line on standard error and exit code 2.
int run_program(const char* name, const std::function<int()>& body);

/// From now on the first Ctrl-C (or SIGTERM) is remembered instead of ending the program; the second ends it.
/// Call it before any other thread starts: threads inherit that these signals are not theirs.
void remember_interrupts();
bool interrupted();
/// From now on the first Ctrl-C is answered at once, with this text; with none, the default, it is not.
/// The text must live on. Returns the text until now.
const char* say_at_interrupt(const char* text);
constexpr const char* kStopping = "stopping; once more leaves at once";

}  // namespace tapeformer
