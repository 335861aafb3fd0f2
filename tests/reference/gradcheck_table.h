#pragma once

#include <tapeformer/autograd/gradcheck/gradcheck.h>

#include <iosfwd>
#include <string>

namespace tapeformer {

/// Fails the running test case unless `report` passed, and puts it into the table that the tests print at the
/// end.
void check_gradients(const std::string& name, const GradcheckReport& report);

/// Prints what this process checked, one line a function, sorted by name, with the worst of all; then merges
/// it into `file`, which holds the lines of every test process since the tests were built.
void report_gradients(std::ostream& out, const std::string& file);

}  // namespace tapeformer
