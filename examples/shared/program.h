#pragma once

#include <functional>

namespace tapeformer {

constexpr const char* kVersion = "0.1.0";

/// The exit codes of all programs.
constexpr int kExitSuccess = 0, kExitBadInput = 2, kExitInterrupted = 130;

/// Runs a program's body, on threads that share the machine with other programs (autograd/system/threads.h).
/// Must be called first in main. An exception becomes one line on standard error and exit code 2, and ends
/// the other processes of a launch too.
int run_program(const char* name, const std::function<int()>& body);

/// From now on the first Ctrl-C, SIGTERM or SIGHUP (a closed terminal) only makes interrupted() true; so does
/// a broken pipe. Another signal, more than a second later, ends a program of one process at once. Signals
/// that are ignored, as by nohup, stay ignored. While the process is stopped, now_seconds() does not advance.
/// Must be called before any other thread starts, because threads inherit the signal mask.
/// Open MPI's mpirun passes Ctrl-C on as SIGCONT, a second later as SIGTERM, and kills after another second:
/// under it SIGCONT counts too, unless the process had been stopped.
void remember_interrupts();
bool interrupted();
/// Sets the text to print at the first Ctrl-C, or nullptr (the default) for none, and returns the previous
/// one. The text must outlive its use.
const char* say_at_interrupt(const char* text);
constexpr const char* kStopping = "stopping; Ctrl-C again quits at once";

}  // namespace tapeformer
