#pragma once

#include <tapeformer/examples/train/session.h>

#include <functional>

namespace tapeformer {

/// Tells what the run would take, each line as soon as it is known: at least one batch is computed. Task,
/// model and session are of no more use.
void dry_run(Session& session, const std::function<void(const std::string&)>& tell);

}  // namespace tapeformer
