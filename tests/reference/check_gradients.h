#pragma once

#include <tapeformer/autograd/gradcheck/gradcheck.h>

#include <string>

namespace tapeformer {

/// Fails the running test case unless `report` passed, and notes how near it came to the tolerance.
void check_gradients(const std::string& name, const GradcheckReport& report);

}  // namespace tapeformer
